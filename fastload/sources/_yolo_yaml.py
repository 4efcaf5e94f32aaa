"""YOLO's data.yaml: splits, classes and keypoints, by the rules of Ultralytics 8.4; names of classes.txt."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from fastload.errors import SourceError

CLASSES_FILES = ("classes.txt", "obj.names")  # labelImg's and Label Studio's; Darknet's and CVAT's


@dataclass(frozen=True, slots=True)
class YoloDescription:
    """A description of a dataset; `splits` holds absolute paths, `details` what `unpack` writes back."""

    file: str = ""
    root: str = ""
    splits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    keypoints: tuple[int, int] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def read_description(path: str) -> YoloDescription:
    """Read a data.yaml; raise SourceError, naming the entry, if it is malformed."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SourceError(f"{path}: must be a yaml file, got: {error}: correct it") from error
    if not isinstance(content, dict):
        _refuse(path, "must be a mapping with train, val and names", type(content).__name__)
    if "val" not in content and "validation" in content:
        content["val"] = content["validation"]
    given = {
        split: _entries(path, split, content[split])
        for split in ("train", "val", "test")
        if content.get(split)
    }
    if not given:
        _refuse(path, "must have train, val or test", ", ".join(map(str, content)))
    root = _root(path, content.get("path"), [entry for entries in given.values() for entry in entries])
    splits = {split: [_resolved(root, entry) for entry in entries] for split, entries in given.items()}
    if "test" in splits and not all(map(os.path.exists, splits["test"])) and len(splits) > 1:
        splits["test"] = []  # exports name it even if they have none
    kept = ("kpt_shape", "flip_idx", "kpt_names", "channels")
    details = {name: content[name] for name in kept if _is_json(content.get(name))}
    return YoloDescription(
        path, root, splits, _classes(path, content), _keypoints(path, content.get("kpt_shape")), details
    )


def read_class_names(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the names in files such as classes.txt, one a line, for a dataset without data.yaml; () if none.

    SourceError is raised if two files differ.
    """
    found: dict[str, tuple[str, ...]] = {}
    paths = (os.path.join(folder, name) for folder in dict.fromkeys(folders) for name in CLASSES_FILES)
    for path in filter(os.path.isfile, paths):
        try:
            with open(path, encoding="utf-8-sig") as file:
                names = tuple(map(str.strip, file.read().rstrip().splitlines()))
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path}: must hold the names of classes, got: {error}: correct it") from error
        other = next((path for path, others in found.items() if others != names), None)
        if other is not None:
            _refuse(path, f"must have the names of {other}", ", ".join(names)[:80])
        found[path] = names
    return next(iter(found.values()), ())


def _entries(path: str, split: str, value: Any) -> list[str]:
    entries = value if isinstance(value, list) else [value]
    if not entries or not all(isinstance(entry, str) for entry in entries):
        _refuse(path, f"{split}: must be a path or a list of paths", repr(value)[:80])
    return entries


def _root(path: str, given: Any, entries: Sequence[str]) -> str:
    """Return the folder that paths are relative to: `path` beside the file, or as given, else the file's."""
    if given is not None and not isinstance(given, str):
        _refuse(path, "path: must be a folder", repr(given)[:80])
    own = os.path.dirname(os.path.abspath(path))
    if not given:
        return own
    candidates = [os.path.normpath(os.path.join(own, given)), os.path.abspath(given), own]
    return next(
        (each for each in candidates if any(os.path.exists(_resolved(each, entry)) for entry in entries)),
        candidates[0],
    )


def _resolved(root: str, entry: str) -> str:
    resolved = os.path.normpath(os.path.join(root, entry))
    if not os.path.exists(resolved) and entry.startswith("../"):  # as some exports have them
        return os.path.normpath(os.path.join(root, entry[3:]))
    return resolved


def _classes(path: str, content: Mapping[str, Any]) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        _refuse(path, "nc: must be a whole number of classes", repr(count)[:80])
    if names is None:
        if count is None:
            _refuse(path, "must have names", ", ".join(map(str, content)))
        return tuple(f"class_{number}" for number in range(count))
    if isinstance(names, dict):
        try:
            numbered = {int(number): name for number, name in names.items()}
        except (TypeError, ValueError):
            _refuse(path, "names: must be numbered", repr(list(names))[:80])
        if sorted(numbered) != list(range(len(names))):
            _refuse(path, f"names: must be numbered from 0 to {len(names) - 1}", repr(sorted(numbered))[:80])
        names = [numbered[number] for number in range(len(names))]
    if not isinstance(names, list) or not names or any(isinstance(name, dict | list) for name in names):
        _refuse(path, "names: must be a list of names", repr(names)[:80])
    if count is not None and count != len(names):
        _refuse(path, f"must have as many names as nc, {count}", str(len(names)))
    return tuple(map(str, names))


def _keypoints(path: str, shape: Any) -> tuple[int, int] | None:
    if shape is None:
        return None
    is_shape = isinstance(shape, list) and len(shape) == 2 and all(type(side) is int for side in shape)
    if not is_shape or shape[0] < 1 or shape[1] not in (2, 3):
        _refuse(path, "kpt_shape: must be [points, 2] or [points, 3]", repr(shape)[:80])
    return shape[0], shape[1]


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str | int) and _is_json(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return isinstance(value, str | int | float)


def _refuse(path: str, wanted: str, got: str) -> NoReturn:
    raise SourceError(f"{path}: {wanted}, got {got}: correct it")
