"""Which files a dataset reads: looked for where datasets keep them, without asking it for a sample."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

_NAMES = (
    *("samples", "imgs", "images", "files", "paths", "image_paths", "img_paths", "image_files", "im_files"),
    *("img_files", "file_list", "filenames", "data", "items"),
)
_MOST_DEPTH = 4
_MOST_LISTED = 4096

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".jp2")


def files_of(dataset: Any) -> list[str]:
    """At most 4 096 of the files that a dataset reads, evenly chosen; empty where none are found."""
    for part in _parts(dataset):
        found = _listed(part)
        if found:
            return found
    return []


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


def _listed(part: Any) -> list[str]:
    if type(part).__module__.startswith("fastload.dataset."):
        return _of_ours(part)
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


def _of_ours(part: Any) -> list[str]:
    with contextlib.suppress(Exception):
        if hasattr(part, "source"):
            files = part.source.files
            step = max(1, len(part) // _MOST_LISTED)
            return [files.path(index) for index in range(0, len(part), step)]
        folder = part._records.folder
        return sorted(entry.path for entry in os.scandir(folder) if entry.name.startswith("shard-"))
    return []


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
