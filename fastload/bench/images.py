"""Images for comparisons: the user's own, or generated ones with the spectrum of photographs."""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastload.bench.operations import DrawnCrop, draw_box
from fastload.bench.results import ImageSet
from fastload.errors import DecodeError, SourceError
from fastload.images.decode import decode, encode
from fastload.images.header import read_header
from fastload.images.opencv import cv2
from fastload.sources.file_source import FileSource
from fastload.sources.opening import open_class_folders
from fastload.sources.protocol import evenly_spaced
from fastload.system.cpus import usable_cpus

# More would take minutes and a gigabyte: each library's own copy of all pixels is in memory at once.
_MOST_PIXEL_BYTES = 48 << 20
_SMALLEST_SIDE = 8  # pixels; in smaller images there is nothing to crop

# (height, width): the most common sizes of ImageNet, about as often as there.
_SIZES = ((375, 500), (375, 500), (333, 500), (500, 375), (375, 500), (500, 333), (375, 500), (500, 500))
# Three in four files of ImageNet keep full colour resolution; at quality 90 a file has some 110 KB, as there.
_SAMPLINGS = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,) * 3 + (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,)
_QUALITY = 90
# In photographs, amplitude falls as one over the frequency (Field 1987, "Relations between the statistics of
# natural images and the response properties of cortical cells"); this exponent gives that file size.
_EXPONENT = 1.2
_CONTRAST, _CHROMA_CONTRAST = 50.0, 12.5  # standard deviations in levels


@dataclass(frozen=True, slots=True, eq=False)
class LoadedImage:
    """The bytes of an image file, its RGB pixels, and the box of the training pipeline."""

    data: bytes
    pixels: NDArray[np.uint8]
    box: DrawnCrop


def make_files(
    folder: Path,
    count: int,
    scale: float = 1.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write the same generated photos on each call; `scale` multiplies their sides."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(number: int) -> None:
        height, width = _SIZES[number % len(_SIZES)]
        data = make_jpeg(number, (round(scale * height), round(scale * width)))
        (folder / f"{number:04d}.jpg").write_bytes(data)

    # NumPy and OpenCV release the GIL, so threads suffice; they end here, before any loader forks.
    with one_core(), ThreadPoolExecutor(usable_cpus()) as pool:
        for done, _ in enumerate(pool.map(write, range(count)), start=1):
            progress(done, count)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Limit OpenCV and torch to one thread."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


def make_jpeg(number: int, size: tuple[int, int] | None = None) -> bytes:
    """Return the generated photo of a number as a JPEG, by default in one of ImageNet's sizes."""
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


def list_images(folder: str | os.PathLike[str]) -> FileSource:
    """Return the images of a folder, or of the first of its splits.

    Raises SourceError if there are none, or the folder cannot be read.
    """
    images = next(iter(open_class_folders(os.fspath(folder), layout="classes").values()))
    if not len(images):
        raise SourceError(f"{os.fspath(folder)}: must hold images, got class folders without any")
    return images


def link_images(images: FileSource, folder: Path, count: int) -> None:
    """Fill a folder with links to at most `count` evenly spaced images, in their class folders."""
    for index in evenly_spaced(len(images), count):
        link = folder / images.key(index)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.abspath(images.files.path(index)), link)


def read_images(folder: Path, available: int | None) -> tuple[list[LoadedImage], ImageSet]:
    """Read the files of a folder that can be compared.

    Images that PIL or OpenCV cannot decode and tiny ones are left out, and the last ones if all of them would
    take up too much memory.
    Raises SourceError if none is left.
    """
    loaded: list[LoadedImage] = []
    notes = []
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    total_bytes = 0
    for number, path in enumerate(paths):
        data = path.read_bytes()
        pixels = decode_with_both(data)
        if pixels is None or min(pixels.shape[:2]) < _SMALLEST_SIDE:
            reason = "PIL or OpenCV cannot decode it" if pixels is None else "it is too small"
            notes.append(f"{path.relative_to(folder)} is left out: {reason}")
            continue
        total_bytes += pixels.nbytes
        if loaded and total_bytes > _MOST_PIXEL_BYTES:
            notes.append("fewer images were taken because they are large")
            break
        loaded.append(LoadedImage(data, pixels, draw_box(pixels.shape, number)))
    if not loaded:
        raise SourceError(
            f"PIL and OpenCV must be able to decode at least one image with {_SMALLEST_SIDE} pixels a side: "
            f"{len(paths):,} were tried, none can be used"
        )
    mean_height, mean_width, _ = np.mean([image.pixels.shape for image in loaded], axis=0)
    return loaded, ImageSet(
        count=len(loaded),
        available=available,
        formats=dict(collections.Counter(read_header(image.data).format for image in loaded)),
        mean_bytes=float(np.mean([len(image.data) for image in loaded])),
        mean_height=float(mean_height),
        mean_width=float(mean_width),
        notes=tuple(notes),
    )


def decode_with_both(data: bytes) -> NDArray[np.uint8] | None:
    """Return OpenCV's pixels if PIL can decode the file, too."""
    try:
        Image.open(io.BytesIO(data)).convert("RGB")
        pixels = np.asarray(decode(data), np.uint8)
        read_header(data)
    except (DecodeError, OSError, ValueError, SyntaxError, ImportError, Image.DecompressionBombError):
        # ImportError: Ultralytics replaces PIL's open by one that asks pi_heif for files unknown to PIL.
        return None
    return pixels
