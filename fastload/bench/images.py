"""Images that are decoded: the user's own, or generated ones with the spectrum of photographs."""

from __future__ import annotations

import collections
import functools
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fastload.bench._operations import DrawnCrop, Sample, Start, draw_box, middle
from fastload.bench.results import ImageSet
from fastload.errors import DecodeError, SourceError
from fastload.images.decode import decode, encode
from fastload.images.header import read_header
from fastload.images.opencv import cv2
from fastload.sources.folder import list_folder
from fastload.sources.protocol import evenly_spaced
from fastload.system.cpus import usable_cpus
from fastload.system.units import format_count

SIDE = 224
"""Side of crops and resizes in pixels, as for ImageNet; smaller if the images are."""

# More would take minutes and a gigabyte: each library's own copy of all pixels is in memory at once.
_MOST_PIXEL_BYTES = 48 << 20
_SMALLEST_SIDE = 8  # pixels; in smaller images there is nothing to crop or to blur

# (height, width): the commonest of ImageNet, about as often as there.
_SIZES = ((375, 500), (375, 500), (333, 500), (500, 375), (375, 500), (500, 333), (375, 500), (500, 500))
# Three in four files of ImageNet keep full colour resolution; at quality 90 a file has some 110 KB, as there.
_SAMPLINGS = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,) * 3 + (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,)
_QUALITY = 90
# The amplitude in photographs falls as one over the frequency (Field 1987, "Relations between the statistics
# of natural images and the response properties of cortical cells"); this exponent gives that file size.
_EXPONENT = 1.2
_CONTRAST, _CHROMA_CONTRAST = 50.0, 12.5  # standard deviations in levels


@dataclass(frozen=True, slots=True, eq=False)
class LoadedImage:
    """An image file with its bytes, RGB pixels, format such as `jpeg`, and the box of training pipelines."""

    path: str
    data: bytes
    pixels: NDArray[np.uint8]
    format: str
    box: DrawnCrop


def make_files(
    folder: Path,
    count: int,
    scale: float = 1.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write the same photo-like JPEGs each time, as `folder/<number>.jpg`; `scale` is that of their sides."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(number: int) -> None:
        height, width = _SIZES[number % len(_SIZES)]
        data = make_jpeg(number, (round(scale * height), round(scale * width)))
        (folder / f"{number:04d}.jpg").write_bytes(data)

    # NumPy and OpenCV release the GIL, so threads suffice; they end here, before any loader forks.
    threads_before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with ThreadPoolExecutor(usable_cpus()) as pool:
            for done, _ in enumerate(pool.map(write, range(count)), start=1):
                progress(done, count)
    finally:
        cv2.setNumThreads(threads_before)


def make_jpeg(number: int, size: tuple[int, int] | None = None) -> bytes:
    """Return the JPEG of a number, of a (height, width) or of one of ImageNet's sizes."""
    height, width = size or _SIZES[number % len(_SIZES)]
    photo = make_photo(np.random.default_rng(number), height, width)
    sampling = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLINGS[number % len(_SAMPLINGS)])
    return encode(photo, ".jpg", (cv2.IMWRITE_JPEG_QUALITY, _QUALITY, *sampling))


def make_photo(random: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    """Return RGB noise with the spectrum of photographs."""
    side = cv2.getOptimalDFTSize(max(height, width))
    planes = [128 + _CONTRAST * _noise(random, side)]
    for _ in range(2):
        # Colour varies more slowly than brightness in photographs, so half the resolution is enough.
        planes.append(128 + _CHROMA_CONTRAST * cv2.resize(_noise(random, side // 2), (side, side)))
    levels = np.clip(np.stack(planes, axis=-1)[:height, :width], 0, 255).astype(np.uint8)
    return np.asarray(cv2.cvtColor(levels, cv2.COLOR_YCrCb2RGB), np.uint8)


def _noise(random: np.random.Generator, side: int) -> NDArray[np.float32]:
    parts = random.standard_normal((side, side // 2 + 1, 2), np.float32)
    plane = np.fft.irfft2(parts.view(np.complex64)[:, :, 0] * _falloff(side), s=(side, side))
    return np.asarray(plane / plane.std(), np.float32)


@functools.cache
def _falloff(side: int) -> NDArray[np.float32]:
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None])
    frequency[0, 0] = np.inf  # the mean is set by the caller
    return np.asarray(frequency**-_EXPONENT, np.float32)


def copy_files(source: str | os.PathLike[str], folder: Path, count: int) -> int:
    """Copy at most `count` evenly spaced images of a folder into another one; return their number there.

    Raises SourceError if there are none, or the folder or a file cannot be read.
    """
    path = os.path.expanduser(os.fspath(source))
    places = [(part, index) for part in list_folder(path).values() for index in range(len(part))]
    if not places:
        raise SourceError(f"{os.fspath(source)}: must hold images, got class folders without any")
    folder.mkdir(parents=True, exist_ok=True)
    for number, place in enumerate(evenly_spaced(len(places), count)):
        part, index = places[place]
        suffix = os.path.splitext(part.key(index))[1].lower()
        (folder / f"{number:04d}{suffix}").write_bytes(part.files.read(index))
    return len(places)


def read_images(folder: Path, available: int | None) -> tuple[list[LoadedImage], ImageSet]:
    """Read the files of a folder and remove those that PIL or OpenCV cannot decode.

    Raises SourceError if none can be decoded.
    """
    images: list[LoadedImage] = []
    notes = []
    paths = sorted(folder.iterdir())
    for number, path in enumerate(paths):
        data = path.read_bytes()
        pixels = _decode_with_both(data)
        if pixels is None or min(pixels.shape[:2]) < _SMALLEST_SIDE:
            reason = "PIL or OpenCV cannot decode it" if pixels is None else "it is too small"
            notes.append(f"{path.suffix} file {number + 1} is left out: {reason}")
            continue
        if images and sum(image.pixels.nbytes for image in images) + pixels.nbytes > _MOST_PIXEL_BYTES:
            notes.append("fewer images were taken because they are large")
            break
        box = draw_box(pixels.shape, number)
        images.append(LoadedImage(str(path), data, pixels, read_header(data).format, box))
    if not images:
        raise SourceError(
            f"PIL and OpenCV must be able to decode at least one image with {_SMALLEST_SIDE} pixels a side: "
            f"{len(paths):,} were tried, none can be used"
        )
    # All crops have one size: a few small images are left out rather than made the measure of all.
    large = [image for image in images if _largest_crop(image) >= SIDE]
    if len(images) <= 2 * len(large) < 2 * len(images):
        left_out = format_count(len(images) - len(large), "small image")
        notes.append(f"left out so that all crops are {SIDE} pixels wide: {left_out}")
        images = large
    for path in {*paths} - {Path(image.path) for image in images}:
        path.unlink()
    mean_height, mean_width, _ = np.mean([image.pixels.shape for image in images], axis=0)
    return images, ImageSet(
        count=len(images),
        available=available,
        formats=dict(collections.Counter(image.format for image in images)),
        mean_bytes=float(np.mean([len(image.data) for image in images])),
        mean_height=float(mean_height),
        mean_width=float(mean_width),
        side=min(SIDE, *map(_largest_crop, images)),
        notes=tuple(notes),
    )


def _largest_crop(image: LoadedImage) -> int:
    """Return a side smaller than the image's, and even, so that its half is whole."""
    height, width, _ = image.pixels.shape
    return int(min(height, width) * 7 // 8 // 2 * 2)


def _decode_with_both(data: bytes) -> NDArray[np.uint8] | None:
    """Return OpenCV's pixels if PIL can decode the file, too."""
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
        pixels = decode(data)
        read_header(data)
    except (DecodeError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return pixels


def inputs_for(images: Sequence[LoadedImage], start: Start, side: int) -> Iterator[Any]:
    """Yield the input of an operation for each image, with pixels as arrays."""
    for image in images:
        if start == "data":
            yield image.data
        elif start == "sample":
            yield Sample(image.data, image.box)
        else:
            pixels = image.pixels
            if start == "small":
                top, left = middle(pixels.shape, side // 2)
                pixels = np.ascontiguousarray(pixels[top : top + side // 2, left : left + side // 2])
            yield pixels
