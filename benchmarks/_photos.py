"""Folders of images: photo-like JPEGs, generated so that no photographs need to be shipped, or given ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import cv2
import numpy as np

from fastload.bench.images import decode_with_both, list_images, make_jpeg
from fastload.errors import DecodeError, SourceError
from fastload.images.decode import decode, encode
from fastload.images.header import read_header
from fastload.sources.protocol import evenly_spaced
from fastload.system.cpus import usable_cpus

# Beyond this number, images are copies in separate files: nothing that is measured caches by content.
_DISTINCT = 200


def make_folder(
    folder: Path,
    count: int,
    classes: int = 100,
    size: tuple[int, int] | None = None,
    distinct_count: int = _DISTINCT,
) -> None:
    """Fill a folder with `count` JPEGs in class folders, of one (height, width) or of ImageNet's sizes."""
    distinct = [make_jpeg(number, size) for number in range(min(count, distinct_count))]
    for number in range(count):
        path = folder / f"class-{number % classes:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(distinct[number % len(distinct)])


def copy_folder(source: Path, folder: Path, count: int) -> int:
    """Fill a folder with `count` JPEGs from another one, evenly spaced, or repeated if there are fewer.

    The parent folder of a JPEG is its class. Raises SystemExit if there are none.

    Returns:
        The number of different ones.
    """
    photos = [path for path in files_of(source) if _is_jpeg(path)]
    if not photos:
        raise SystemExit(f"{source}: must hold JPEG files, got none")
    repeat_images(photos, folder, count)
    return min(count, len(photos))


def repeat_images(originals: Sequence[Path], folder: Path, count: int, is_linked: bool = False) -> None:
    """Fill a folder with `count` images in class folders: evenly spaced, or repeated if there are fewer.

    The parent folder of an image is its class. Repetitions are separate files, because a page cache holds
    each file once; with `is_linked` they are hard links, so that millions of them fit on a disk.
    """
    written: dict[int, str] = {}
    for name in {path.parent.name for path in originals}:
        (folder / name).mkdir(parents=True, exist_ok=True)
    # Strings, because there may be millions.
    ends = [(str(folder / path.parent.name), path.suffix) for path in originals]
    for number in range(count):
        index = number * len(originals) // count if count <= len(originals) else number % len(originals)
        path = f"{ends[index][0]}/{number:06d}{ends[index][1]}"
        if is_linked and index in written:
            with contextlib.suppress(OSError):  # a file system's limit: 65,000 links to a file in ext4
                os.link(written[index], path)
                continue
        shutil.copyfile(originals[index], path)
        written[index] = path


def resize_images(originals: Sequence[Path], folder: Path, shorter_side: int) -> list[Path]:
    """Write JPEGs of quality 90 with a shorter side of that many pixels; return their paths."""
    paths = []
    for number, original in enumerate(originals):
        pixels = decode(original.read_bytes())
        scale = shorter_side / min(pixels.shape[:2])
        height, width = (max(1, round(scale * side)) for side in pixels.shape[:2])
        resized = np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
        paths.append(folder / original.parent.name / f"{number:06d}.jpg")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_bytes(encode(resized, ".jpg", (cv2.IMWRITE_JPEG_QUALITY, 90)))
    return paths


def readable_images(folder: str | os.PathLike[str], count: int) -> list[Path]:
    """Return at most `count` evenly spaced images of a folder that both PIL and OpenCV can decode.

    Raises SourceError if there are none.
    """
    images = list_images(folder)
    paths = [Path(images.files.path(index)) for index in evenly_spaced(len(images), count)]
    with ThreadPoolExecutor(usable_cpus()) as pool:
        decoded = pool.map(lambda path: decode_with_both(path.read_bytes()) is not None, paths)
        readable = [path for path, is_readable in zip(paths, decoded, strict=True) if is_readable]
    if not readable:
        raise SourceError(f"{os.fspath(folder)}: PIL and OpenCV must be able to decode an image, got none")
    return readable


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack the files of a tar archive into a folder, each under its last folder and its name."""
    with tarfile.open(archive) as tar:
        for member in tar:
            parent, name = PurePosixPath(member.name).parts[-2:] if "/" in member.name else ("", "")
            content = tar.extractfile(member) if member.isfile() and parent != ".." else None
            if content is not None:
                path = folder / parent / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())


def files_of(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _is_jpeg(path: Path) -> bool:
    """Return True if a file is a complete JPEG, whatever its name."""
    try:
        return read_header(path.read_bytes()).format == "jpeg"
    except DecodeError:
        return False
