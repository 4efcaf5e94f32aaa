"""The pictures that are decoded: the visitor's own, or such as photographs are to a decoder."""

from __future__ import annotations

import collections
import functools
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastload.bench.operations import Box, Given, Sample, draw_box, middle
from fastload.bench.result import Pictures
from fastload.errors import DecodeError, SourceError
from fastload.images.decode import decode, encode
from fastload.images.header import read_header
from fastload.images.opencv import cv2
from fastload.sources.folder import list_folder
from fastload.sources.protocol import evenly_spaced

SIDE = 224
"""Of crops and resizes, as for ImageNet; smaller where pictures are."""

# More would take minutes, and a gigabyte: every library's own kind of all pixels lies in memory at once.
_MOST_PIXEL_BYTES = 48 << 20

# (height, width): ImageNet's commonest, about as often as there.
_SIZES = ((375, 500), (375, 500), (333, 500), (500, 375), (375, 500), (500, 333), (375, 500), (500, 500))
# As files of ImageNet: three in four keep all their colour. Quality 90 makes about 110 KB of these, as there.
_SAMPLINGS = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,) * 3 + (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,)
_QUALITY = 90
# The spectrum of photographs falls as one over the frequency (Field 1987, "Relations between the statistics
# of natural images and the response properties of cortical cells"); with this exponent, files get that size.
_EXPONENT = 1.2
_CONTRAST, _CHROMA_SHARE = 50, 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """One picture.

    Attributes:
        path: Its file.
        data: The file's bytes.
        pixels: RGB, uint8, (height, width, 3).
        format: Of the file, such as `jpeg`.
        box: What a training pipeline crops.
    """

    path: str
    data: bytes
    pixels: NDArray[np.uint8]
    format: str
    box: Box


_SMALLEST_SIDE = 8  # in pixels: below, crops and blurs have nothing to do


def make_files(folder: Path, count: int, scale: float = 1.0) -> None:
    """Writes pictures as `folder/<number>.jpg`, the same ones each time.

    Args:
        folder: Made where it does not exist.
        count: How many.
        scale: Of their sides.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        height, width = (round(scale * side) for side in _SIZES[number % len(_SIZES)])
        sampling = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLINGS[number % len(_SAMPLINGS)])
        options = (cv2.IMWRITE_JPEG_QUALITY, _QUALITY, *sampling)
        pixels = _photo(np.random.default_rng(number), height, width)
        (folder / f"{number:04d}.jpg").write_bytes(encode(pixels, ".jpg", options))


def _photo(random: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    side = cv2.getOptimalDFTSize(max(height, width))
    planes = []
    for share in (1, _CHROMA_SHARE, _CHROMA_SHARE):
        spectrum = np.fft.rfft2(random.standard_normal((side, side))) * _falloff(side)
        plane = np.fft.irfft2(spectrum, (side, side))[:height, :width]
        planes.append(128 + _CONTRAST * share * plane / plane.std())
    levels = np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)
    return np.asarray(cv2.cvtColor(levels, cv2.COLOR_YCrCb2RGB), np.uint8)


@functools.cache
def _falloff(side: int) -> NDArray[np.float64]:
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None])
    frequency[0, 0] = np.inf
    return np.asarray(frequency**-_EXPONENT, np.float64)


def copy_files(source: str | os.PathLike[str], folder: Path, count: int) -> int:
    """Copies an even sample of a folder's images into another one, which gets no folders of classes.

    Args:
        source: A folder of images, of class folders, or of splits with such.
        folder: Made where it does not exist.
        count: How many images at most.

    Returns:
        How many images there were.

    Raises:
        SourceError: There are none, or the folder or a file cannot be read.
    """
    path = os.path.expanduser(os.fspath(source))
    sources = list(list_folder(path).values())
    places = [(part, index) for part in sources for index in range(len(part))]
    if not places:
        raise SourceError(f"{os.fspath(source)}: must hold images, got class folders without any")
    folder.mkdir(parents=True, exist_ok=True)
    for number, place in enumerate(evenly_spaced(len(places), count)):
        part, index = places[place]
        data = part.files.read(index)
        suffix = os.path.splitext(part.key(index))[1].lower()
        (folder / f"{number:04d}{suffix}").write_bytes(data)
    return len(places)


def read_pictures(folder: Path, available: int | None) -> tuple[list[Picture], Pictures]:
    """Reads the files of a folder; those that PIL or OpenCV cannot decode are removed from it.

    Args:
        folder: What `make_files` or `copy_files` filled.
        available: How many the source had; None where they were made.

    Returns:
        The pictures, and what there is to say of them.

    Raises:
        SourceError: None can be decoded.
    """
    pictures: list[Picture] = []
    notes = []
    paths = sorted(folder.iterdir())
    room = _MOST_PIXEL_BYTES
    for number, path in enumerate(paths):
        data = path.read_bytes()
        pixels = _pixels(data)
        if pixels is None:
            notes.append(f"{path.suffix} file {number + 1} is left out: PIL or OpenCV cannot decode it")
        elif min(pixels.shape[:2]) < _SMALLEST_SIDE:
            small = f"a side is below {_SMALLEST_SIDE} pixels"
            notes.append(f"{path.suffix} file {number + 1} is left out: {small}")
        elif pictures and pixels.nbytes > room:
            notes.append("fewer images were taken, because they are large")
            _remove(paths[number:])
            break
        else:
            room -= pixels.nbytes
            box = draw_box(pixels.shape, number)
            pictures.append(Picture(str(path), data, pixels, read_header(data).format, box))
            continue
        _remove([path])
    if not pictures:
        raise SourceError(
            f"{len(paths):,} images were tried, of which PIL and OpenCV must be able to decode one, of at "
            f"least {_SMALLEST_SIDE} pixels a side"
        )
    kept = _large_enough(pictures)
    if len(kept) < len(pictures):
        notes.append(
            f"small images are left out ({len(pictures) - len(kept)}), so that all crops are {SIDE} wide"
        )
        _remove([Path(picture.path) for picture in pictures if picture not in kept])
    return kept, _described(kept, available, notes)


def _large_enough(pictures: list[Picture]) -> list[Picture]:
    """Those that crops of the usual size can be cut out of; all, where those are the fewer."""
    large = [picture for picture in pictures if _largest_crop(picture.pixels.shape) >= SIDE]
    return large if 2 * len(large) >= len(pictures) else pictures


def _largest_crop(shape: Sequence[int]) -> int:
    """Smaller than the picture; and even, so that its half is whole."""
    return min(shape[:2]) * 7 // 8 // 2 * 2


def _pixels(data: bytes) -> NDArray[np.uint8] | None:
    """What PIL and OpenCV both can decode, as OpenCV does."""
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
        pixels = decode(data)
        read_header(data)
    except (DecodeError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return pixels


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink()


def _described(pictures: Sequence[Picture], available: int | None, notes: Sequence[str]) -> Pictures:
    heights, widths = ([picture.pixels.shape[axis] for picture in pictures] for axis in (0, 1))
    return Pictures(
        count=len(pictures),
        available=available,
        formats=dict(collections.Counter(picture.format for picture in pictures)),
        mean_bytes=float(np.mean([len(picture.data) for picture in pictures])),
        mean_height=float(np.mean(heights)),
        mean_width=float(np.mean(widths)),
        side=min(SIDE, *(_largest_crop(picture.pixels.shape) for picture in pictures)),
        notes=tuple(notes),
    )


def given_values(pictures: Sequence[Picture], given: Given, side: int) -> Iterator[Any]:
    """What an operation starts from, for each picture, before a library takes it.

    Args:
        pictures: The pictures.
        given: As `Operation.given` says.
        side: Of crops, in pixels.
    """
    for picture in pictures:
        if given == "path":
            yield picture.path
        elif given == "data":
            yield picture.data
        elif given == "sample":
            yield Sample(picture.data, picture.box)
        elif given == "bgr":
            yield np.ascontiguousarray(picture.pixels[:, :, ::-1])
        elif given == "small":
            top, left = middle(picture.pixels.shape, side // 2)
            yield np.ascontiguousarray(picture.pixels[top : top + side // 2, left : left + side // 2])
        else:
            yield picture.pixels
