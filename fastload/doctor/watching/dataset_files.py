"""Files that a dataset lists in its attributes, their size and their disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from pathlib import Path

from fastload.datasets.folder import FolderDataset
from fastload.datasets.packed import PackedDataset
from fastload.datasets.within import image_datasets_in
from fastload.doctor.findings import DataStorage
from fastload.system.disks import disk_of
from fastload.system.page_cache import drop

# Attributes that are searched first.
_NAMES = (
    *("samples", "imgs", "images", "files", "paths", "image_paths", "img_paths", "image_files", "im_files"),
    *("img_files", "file_list", "filenames", "data", "items"),
)
_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".jp2")
_MOST_DEPTH = 4
_MOST_LISTED = 4096


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Files of a dataset, some thousand of them evenly chosen, or all shards of a packed one."""

    paths: list[str]
    are_shards: bool = False

    @property
    def are_images(self) -> bool:
        """True if the files are images, judged by their names."""
        return bool(self.paths) and all(path.lower().endswith(_IMAGE_ENDINGS) for path in self.paths[:8])


def files_of(dataset: object) -> DataFiles:
    """Return the files that a dataset lists, or its shards."""
    for part in parts_of(dataset):
        with contextlib.suppress(Exception):
            if isinstance(part, PackedDataset) and isinstance(part.folder, Path):
                return DataFiles(sorted(str(path) for path in part.folder.glob("shard-*")), are_shards=True)
            if found := _listed(part):
                return DataFiles(found)
    return DataFiles([])


def count_of(dataset: object) -> int:
    """Return the number of a dataset's samples; 0 if unknown."""
    with contextlib.suppress(Exception):
        return len(dataset) if isinstance(dataset, Sized) else 0
    return 0


def folder_of(dataset: object) -> str:
    """Return the folder that a dataset has as an attribute; "" if unknown."""
    attributes = [getattr(part, "__dict__", {}) for part in parts_of(dataset)]
    roots = [each.get(name) for each in attributes for name in ("root", "root_dir", "img_dir")]
    return next((str(root) for root in roots if isinstance(root, (str, os.PathLike))), "")


def encoding_of(dataset: object) -> str | None:
    """Return the encoding of a packed dataset's images; None without images, or for any other dataset."""
    return next((part.encoding for part in parts_of(dataset) if isinstance(part, PackedDataset)), None)


def parts_of(dataset: object) -> Iterator[object]:
    """Yield a dataset, then the datasets that it wraps."""
    parts = [dataset]
    for _ in range(_MOST_DEPTH):
        yield from parts
        inner: list[object] = []
        for part in parts:
            attributes = getattr(part, "__dict__", {})
            names = ("dataset", "theirs", "source", "_source", "files")
            inner += [attributes[name] for name in names if name in attributes]
            several = attributes.get("datasets")
            inner += several[:8] if isinstance(several, (list, tuple)) else []
        parts = inner


def _listed(part: object) -> list[str]:
    if isinstance(part, FolderDataset):
        step = max(1, len(part) // _MOST_LISTED)
        return [part.source.files.path(index) for index in range(0, len(part), step)]
    if image_datasets_in(part):
        return []  # what it wraps lists them
    attributes = getattr(part, "__dict__", {})
    prefixes = ["", folder_of(part)]
    for name in sorted(attributes, key=lambda name: (name.lstrip("_") not in _NAMES, name)):
        value = attributes[name]
        if isinstance(value, (list, tuple)):
            items = value[:: max(1, len(value) // _MOST_LISTED)]
            paths = [path for path in map(_path_in, items) if path is not None]
            for prefix in prefixes:
                joined = [os.path.join(prefix, path) for path in paths]
                if joined and all(map(os.path.isfile, joined[:: max(1, len(joined) // 8)])):
                    return joined
    return []


def _path_in(item: object) -> str | None:
    """Return the path in a listed item: the item itself, or the first one in a tuple or a dict."""
    if isinstance(item, (str, os.PathLike)):
        return os.fspath(item) if isinstance(os.fspath(item), str) else None
    if isinstance(item, dict):
        return next(filter(None, map(_path_in, item.values())), None)
    return _path_in(item[0]) if isinstance(item, (tuple, list)) and item else None


def storage_of(files: DataFiles, samples: int) -> DataStorage | None:
    """Return the size of a dataset, estimated from some of its files, and their disk; None for no files."""
    sizes = []
    for path in files.paths if files.are_shards else files.paths[:: max(1, len(files.paths) // 256)]:
        with contextlib.suppress(OSError):
            sizes.append(os.stat(path).st_size)
    if not sizes:
        return None
    samples = max(1, samples if files.are_shards else max(samples, len(files.paths)))
    size_bytes = sum(sizes) if files.are_shards else round(sum(sizes) / len(sizes) * samples)
    disk = disk_of(files.paths[0])
    kind = disk.file_system if disk.kind == "unknown" else f"{disk.kind}, {disk.file_system}"
    return DataStorage(samples, size_bytes, kind)


def drop_pages(files: DataFiles) -> None:
    """Drop the files from the page cache, where the system can."""
    for path in dict.fromkeys(files.paths):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            drop(file.fileno(), 0, os.fstat(file.fileno()).st_size)
