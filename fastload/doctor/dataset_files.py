"""Files that a dataset reads, found where datasets keep them, and the speed of their disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.doctor.findings import Store
from fastload.errors import OptionError
from fastload.system.disks import disk_of
from fastload.system.read_speed import measure_reading

_NAMES = (
    *("samples", "imgs", "images", "files", "paths", "image_paths", "img_paths", "image_files", "im_files"),
    *("img_files", "file_list", "filenames", "data", "items"),
)
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".jp2")

_MOST_DEPTH = 4
_MOST_LISTED = 4096
_MOST_ATTRIBUTES = 256
# A file that an attribute names is not a table of labels if it is larger than this.
_LEAST_CONTAINER_BYTES = 1 << 20
# A record's size where nobody says how many there are: a photo's.
_RECORD_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class DataFiles:
    """At most 4,096 files of a dataset, evenly chosen; containers hold many samples each."""

    paths: list[str]
    are_containers: bool = False

    @property
    def are_images(self) -> bool:
        """True if each is an image by its name."""
        return (
            bool(self.paths)
            and not self.are_containers
            and all(path.lower().endswith(IMAGE_ENDINGS) for path in self.paths[:8])
        )


def files_of(dataset: Any) -> DataFiles:
    """Return the files that a dataset lists, else those that it maps, holds open or names."""
    for part in parts_of(dataset):
        if shards := _shards(part):
            return DataFiles(shards, are_containers=True)
        if found := _listed(part):
            return DataFiles(found, _hold_many(found, count_of(dataset)))
    containers = [path for part in parts_of(dataset) for path in _containers(part)]
    return DataFiles(list(dict.fromkeys(containers)), are_containers=True)


def count_of(dataset: Any) -> int:
    """Return the number of a dataset's samples; 0 where it does not say."""
    with contextlib.suppress(Exception):
        return len(dataset)
    return 0


def encoding_of(dataset: Any) -> str | None:
    """Return the encoding of a packed dataset's images; None for any other dataset."""
    for part in parts_of(dataset):
        encoding = getattr(part, "_encoding", None)
        if type(part).__module__.startswith("fastload.") and encoding is not None:
            return str(encoding.name)
    return None


def parts_of(dataset: Any) -> Iterator[Any]:
    """Yield a dataset, then those that it is made of."""
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
    if not _is_ours(part) or hasattr(part, "source"):
        return []
    with contextlib.suppress(Exception):
        folder = part._records.folder
        return sorted(entry.path for entry in os.scandir(folder) if entry.name.startswith("shard-"))
    return []


def _listed(part: Any) -> list[str]:
    if _is_ours(part):
        with contextlib.suppress(Exception):
            files = part.source.files
            return [files.path(index) for index in range(0, len(part), max(1, len(part) // _MOST_LISTED))]
        return []
    attributes = getattr(part, "__dict__", {})
    for name in sorted(attributes, key=lambda name: (name.lstrip("_") not in _NAMES, name)):
        value = attributes[name]
        if isinstance(value, (list, tuple)) and value:
            chosen = value[:: max(1, len(value) // _MOST_LISTED)]
            paths = [path for path in map(_path_in, chosen) if path is not None]
            root = attributes.get("root") or attributes.get("root_dir") or attributes.get("img_dir")
            if existing := _existing(paths, root):
                return existing
    return []


def _path_in(item: Any) -> str | None:
    """Return the path in a listed item: a path itself, or the first one of a tuple or a dict."""
    if isinstance(item, (str, os.PathLike)):
        return os.fspath(item) if isinstance(os.fspath(item), str) else None
    if isinstance(item, dict):
        return next((path for path in map(_path_in, item.values()) if path is not None), None)
    return _path_in(item[0]) if isinstance(item, (tuple, list)) and item else None


def _existing(paths: Sequence[str], root: Any) -> list[str]:
    """Return the paths, if some of them are files, as they are or below a root."""
    roots = [os.fspath(root)] if isinstance(root, (str, os.PathLike)) else []
    for prefix in ("", *roots):
        joined = [os.path.join(prefix, path) for path in paths]
        if joined and all(os.path.isfile(path) for path in joined[:: max(1, len(joined) // 8)]):
            return joined
    return []


def _hold_many(paths: Sequence[str], samples: int) -> bool:
    """Return whether fewer files than samples are large, and no images."""
    are_images = any(path.lower().endswith(IMAGE_ENDINGS) for path in paths[:8])
    return len(paths) < min(samples, _MOST_LISTED) and not are_images and all(map(_is_large, paths[:8]))


def _containers(part: Any) -> Iterator[str]:
    """Yield the large files behind a dataset's attributes, or behind a few that one of them lists."""
    for value in list(getattr(part, "__dict__", {}).values())[:_MOST_ATTRIBUTES]:
        inner: Any = list(value.values()) if isinstance(value, dict) else value
        for item in (inner if isinstance(inner, (list, tuple)) else [inner])[:_MOST_ATTRIBUTES]:
            path = _container(item)
            if path is not None and _is_large(path):
                yield path


def _container(value: Any) -> str | None:
    """Return the file that a memory-mapped array, an HDF5 or LMDB handle or a path stands for."""
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


def measure_store(
    paths: Sequence[str], samples: int, most_s: float = 1.0, are_containers: bool = False
) -> Store | None:
    """Read some of the files, from the disk and from the page cache; None where there are none.

    `paths` may be a part of the files, unless they are containers; `samples` is the number of all samples (0:
    unknown).
    """
    chosen = paths if are_containers else paths[:: max(1, len(paths) // 256)]
    sizes = []
    for path in chosen:
        with contextlib.suppress(OSError):
            sizes.append(os.stat(path).st_size)
    if not sizes:
        return None
    record_bytes = None
    size_bytes = round(sum(sizes) / len(sizes) * samples)
    if are_containers:
        size_bytes = sum(sizes)
        samples = samples or max(1, size_bytes // _RECORD_BYTES)
        record_bytes = max(1, size_bytes // samples)
    with contextlib.suppress(OptionError, OSError):
        disk = disk_of(paths[0])
        reading = measure_reading(paths, record_bytes, most_s=most_s)
        return Store(
            samples=samples,
            size_bytes=size_bytes,
            kind=disk.file_system if disk.kind == "unknown" else f"{disk.kind}, {disk.file_system}",
            is_cold=reading.is_cold,
            random_per_s=reading.cold_random.records_per_s,
            parallel_per_s=max(reading.cold_parallel.records_per_s, reading.cold_random.records_per_s),
            warm_per_s=reading.warm_random.records_per_s,
            latency_s=reading.latency_s,
            note=reading.note,
            are_containers=are_containers,
        )
    return Store(samples, size_bytes, are_containers=are_containers)
