"""Pictures that look to a codec like photographs, made here, so that nobody's need be shipped."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.header import read_header

# (height, width): ImageNet's commonest, about as often as there; 394 × 454 on average.
_SIZES = [(375, 500)] * 5 + [(333, 500)] * 2 + [(500, 375)] * 2 + [(500, 333), (500, 500)]
# As files of ImageNet: three in four keep all their colour.
_SAMPLINGS = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444] * 3 + [cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]
_QUALITY = 90
# The spectrum of photographs falls as 1/f; with this exponent, JPEGs of quality 90 take what
# ImageNet's files take, 110 KB on average.
_EXPONENT = 1.2
_CONTRAST = 50
_CHROMA_SHARE = 0.25

# More pictures than this are copies, each a file of its own: none of what is measured remembers.
_DISTINCT = 200


def make_photo(rng: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    """1/f noise with soft colours, BGR as OpenCV writes it."""
    side = cv2.getOptimalDFTSize(max(height, width))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None])
    frequency[0, 0] = np.inf
    planes = []
    for share in (1, _CHROMA_SHARE, _CHROMA_SHARE):
        spectrum = np.fft.rfft2(rng.standard_normal((side, side))) / frequency**_EXPONENT
        plane = np.fft.irfft2(spectrum, (side, side))[:height, :width]
        planes.append(128 + _CONTRAST * share * plane / plane.std())
    pixels = np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)
    return cv2.cvtColor(pixels, cv2.COLOR_YCrCb2BGR)


def make_jpeg(number: int, size: tuple[int, int] | None = None) -> bytes:
    """The picture of this number as a JPEG; of one of ImageNet's sizes where none is given."""
    height, width = size or _SIZES[number % len(_SIZES)]
    pixels = make_photo(np.random.default_rng(number), height, width)
    sampling = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLINGS[number % len(_SAMPLINGS)]]
    done, data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY, *sampling])
    assert done
    return data.tobytes()


def make_folder(
    folder: Path,
    count: int,
    classes: int = 100,
    size: tuple[int, int] | None = None,
    distinct_count: int = _DISTINCT,
) -> None:
    """Fills a folder with `count` JPEGs in class folders, of one size or of ImageNet's sizes."""
    distinct = [make_jpeg(number, size) for number in range(min(count, distinct_count))]
    for number in range(count):
        path = folder / f"class-{number % classes:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(distinct[number % len(distinct)])


def copy_folder(source: Path, folder: Path, count: int) -> None:
    """Fills a folder with `count` JPEGs of another one, evenly chosen, or copied until it is full.

    The folder that a JPEG lies in is its class.

    Raises:
        SystemExit: There are none.
    """
    photos = [path for path in files_of(source) if _is_jpeg(path)]
    if not photos:
        raise SystemExit(f"{source}: must hold JPEG files, got none")
    for number in range(count):
        place = number * len(photos) // count if count <= len(photos) else number % len(photos)
        path = folder / photos[place].parent.name / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(photos[place], path)


def unpack_tar(archive: Path, folder: Path) -> None:
    """Puts the files of a tar archive into a folder, by the folder that they lie in and their name."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parent, name = PurePosixPath(member.name).parts[-2:] if "/" in member.name else ("", "")
            content = tar.extractfile(member) if member.isfile() and parent != ".." else None
            if content is not None:
                path = folder / parent / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())


def files_of(folder: Path) -> list[Path]:
    """All files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _is_jpeg(path: Path) -> bool:
    """Whether it is one, whatever its name says, and whole."""
    try:
        return read_header(path.read_bytes()).format == "jpeg"
    except DecodeError:
        return False
