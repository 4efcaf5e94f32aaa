"""Folders of photo-like JPEGs, generated so that no photographs need to be shipped."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

from fastload.bench.images import make_jpeg, repeat_images
from fastload.errors import DecodeError
from fastload.images.header import read_header

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
