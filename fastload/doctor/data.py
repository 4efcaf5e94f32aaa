"""Which files a dataset reads: looked for where datasets keep them, without asking it for a sample."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_NAMES = (
    *("samples", "imgs", "images", "files", "paths", "image_paths", "img_paths", "image_files", "im_files"),
    *("img_files", "file_list", "filenames", "data", "items"),
)
_MOST_DEPTH = 4
_MOST_LISTED = 4096

# A file that an attribute names is not a table of labels if it is larger than this.
_LEAST_CONTAINER_BYTES = 1 << 20
_MOST_ATTRIBUTES = 256

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".jp2")


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files that a dataset reads.

    Attributes:
        paths: At most 4,096 of them, evenly chosen; empty where none were found.
        are_containers: Whether each holds many samples: shards, HDF5 files, memory-mapped arrays.
    """

    paths: list[str]
    are_containers: bool = False


def files_of(dataset: Any) -> DataFiles:
    """The files that a dataset reads: those that it lists, else those that it maps, holds open or names."""
    for part in _parts(dataset):
        if shards := _shards(part):
            return DataFiles(shards, are_containers=True)
        if found := _listed(part):
            return DataFiles(found, _hold_many(found, count_of(dataset)))
    containers = [path for part in _parts(dataset) for path in _containers(part)]
    return DataFiles(list(dict.fromkeys(containers)), are_containers=True)


def count_of(dataset: Any) -> int:
    """How many samples a dataset has; 0 where it does not say."""
    with contextlib.suppress(Exception):
        return len(dataset)
    return 0


def encoding_of(dataset: Any) -> str | None:
    """How a packed dataset stores its images; None for any other."""
    for part in _parts(dataset):
        encoding = getattr(part, "_encoding", None)
        if type(part).__module__.startswith("fastload.") and encoding is not None:
            return str(encoding.name)
    return None


def _parts(dataset: Any) -> Iterator[Any]:
    """A dataset, then those that it is made of."""
    parts, depth = [dataset], 0
    while parts and depth < _MOST_DEPTH:
        yield from parts
        inner: list[Any] = []
        for part in parts:
            attributes = getattr(part, "__dict__", {})
            inner += [
                attributes[name] for name in ("dataset", "source", "_source", "files") if name in attributes
            ]
            several = attributes.get("datasets")
            inner += list(several)[:8] if isinstance(several, (list, tuple)) else []
        parts, depth = inner, depth + 1


def _is_ours(part: Any) -> bool:
    return type(part).__module__.startswith("fastload.datasets.")


def _shards(part: Any) -> list[str]:
    """The shards of a packed dataset."""
    if not _is_ours(part) or hasattr(part, "source"):
        return []
    with contextlib.suppress(Exception):
        folder = part._records.folder
        return sorted(entry.path for entry in os.scandir(folder) if entry.name.startswith("shard-"))
    return []


def _listed(part: Any) -> list[str]:
    if _is_ours(part):
        return _of_folder(part)
    attributes = getattr(part, "__dict__", {})
    ordered = sorted(attributes, key=lambda name: (name.lstrip("_") not in _NAMES, name))
    for name in ordered:
        value = attributes[name]
        if isinstance(value, (list, tuple)) and value:
            step = max(1, len(value) // _MOST_LISTED)
            paths = [path for path in map(_path_in, value[::step]) if path is not None]
            root = attributes.get("root") or attributes.get("root_dir") or attributes.get("img_dir")
            existing = _existing(paths, root)
            if existing:
                return existing
    return []


def _of_folder(part: Any) -> list[str]:
    with contextlib.suppress(Exception):
        files = part.source.files
        step = max(1, len(part) // _MOST_LISTED)
        return [files.path(index) for index in range(0, len(part), step)]
    return []


def _hold_many(paths: Sequence[str], samples: int) -> bool:
    """Whether fewer files than samples are large, and no images: one image may well be drawn many times."""
    are_images = any(path.lower().endswith(IMAGE_ENDINGS) for path in paths[:8])
    return len(paths) < min(samples, _MOST_LISTED) and not are_images and all(map(_is_large, paths[:8]))


def _containers(part: Any) -> Iterator[str]:
    """The files behind a dataset's attributes, or behind a few that one of them lists."""
    for value in list(getattr(part, "__dict__", {}).values())[:_MOST_ATTRIBUTES]:
        inner: Any = [value]
        if isinstance(value, dict):
            inner = list(value.values())
        elif isinstance(value, (list, tuple)):
            inner = value
        for item in inner[:_MOST_ATTRIBUTES]:
            path = _container(item)
            if path is not None and _is_large(path):
                yield path


def _container(value: Any) -> str | None:
    """The file that a memory-mapped array, an HDF5 or LMDB handle or a path stands for."""
    with contextlib.suppress(Exception):
        if isinstance(value, np.ndarray):
            while not isinstance(value, np.memmap) and isinstance(value.base, np.ndarray):
                value = value.base
            return os.fspath(value.filename) if isinstance(value, np.memmap) and value.filename else None
        package = type(value).__module__.partition(".")[0]
        if package == "h5py":
            return str(value.file.filename)
        path = value.path() if package == "lmdb" or type(value).__name__ == "Environment" else value
        if isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str):
            inside = os.path.join(os.fspath(path), "data.mdb")
            return inside if os.path.isfile(inside) else os.fspath(path)
    return None


def _is_large(path: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return os.path.isfile(path) and os.path.getsize(path) >= _LEAST_CONTAINER_BYTES
    return False


def _path_in(item: Any) -> str | None:
    """The path in a listed item: a path itself, or the first one of a tuple or a dict."""
    if isinstance(item, (str, os.PathLike)):
        return os.fspath(item) if isinstance(os.fspath(item), str) else None
    if isinstance(item, dict):
        return next((path for path in map(_path_in, item.values()) if path is not None), None)
    if isinstance(item, (tuple, list)) and item:
        return _path_in(item[0])
    return None


def _existing(paths: Sequence[str], root: Any) -> list[str]:
    """The paths, if the first ones are files; below a root where that makes them files."""
    for prefix in ("", root if isinstance(root, (str, os.PathLike)) else None):
        if prefix is None:
            continue
        joined = [os.path.join(os.fspath(prefix), path) for path in paths]
        if joined and all(os.path.isfile(path) for path in joined[:: max(1, len(joined) // 8)]):
            return joined
    return []
