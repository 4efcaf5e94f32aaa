"""Hugging Face datasets on disk as sources: save_to_disk's folders, .arrow cache files, and Parquet.

The columns decide the fields, by Arrow's types and by the features that `datasets` stores in a file's schema:

    Image                         the image, then further images; a file that only a path names is read
    ClassLabel                    the label and the classes; a second one becomes a field of integers
    numbers, text, binary         scalar, text and bytes fields
    lists of numbers, of text     vectors if their length is fixed, else ragged fields; texts
    objects {bbox, category, …}   boxes (x, y, width, height in pixels, as in COCO), labels, and per object
                                  the other parts
    other structs                 a field for each part, `NAME_PART`

A missing value is an error when its row is read; so is any other type of column when the source is opened.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources._annotated import upright_sides
from fastload.sources._arrow_columns import ArrowColumns, dig
from fastload.sources._containers import ContainerSource, by_split, holds_only
from fastload.sources._malformed import can_only_be_corners, malformed, require_inside
from fastload.sources._walking import list_entries
from fastload.sources.arrow import ArrowFiles
from fastload.sources.files import list_files
from fastload.sources.left_out import LeftOutFiles, clutter_reason
from fastload.sources.protocol import SourceRecord

_SUFFIXES = (".arrow", ".parquet")
_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_FORMAT = "be x, y, width, height in pixels"
_STEP = "correct it; pack corners or fractions from Python: fastload.pack(dataset, 'DEST.fl', fields=…)"
_SPLITS = {"validation": "val", "valid": "val", "dev": "val", "training": "train"}


def is_huggingface(path: str) -> bool:
    """Return True for an .arrow or .parquet file, or a folder of them without images beside."""
    if not os.path.isdir(path):
        return path.lower().endswith(_SUFFIXES)
    folder = list_entries(path)
    if _DICT in folder.files or {_STATE, _INFO} <= {*folder.files}:
        return True
    inner = "data" if folder.folders == ["data"] else ""
    return holds_only(os.path.join(path, inner), lambda name: name.lower().endswith(_SUFFIXES))


def open_huggingface(path: str) -> dict[str, ArrowSource]:
    """List the rows of a dataset by split; raise SourceError for columns that cannot be stored."""
    left_out = LeftOutFiles()
    root = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path) or ".")
    sources: dict[str, ArrowSource] = {}
    for split, (names, sidecars) in _splits(path, root, left_out).items():
        if not names:
            raise SourceError(f"{path}: must name data files in {_STATE}, got none: write the dataset again")
        rows = ArrowFiles(list_files(root, names))
        columns = ArrowColumns(rows)
        texts = {name: _read_text(os.path.join(root, name)) for name in sidecars}
        if "image" not in columns.roles.values():
            raise malformed(
                path, "have a column of images", ", ".join(rows.schema.names), "fastload packs images"
            )
        _require_sides(rows, columns.roles)
        schema = base64.b64encode(rows.schema.serialize().to_pybytes()).decode()
        sources[split] = ArrowSource(
            kind="huggingface",
            name=path,
            classes=columns.classes,
            fields=(*columns.fields, Field("shard", "scalar", "int64", internal=True)),
            files=rows.files,
            rows=rows,
            roles=columns.roles,
            left_out=left_out.finish() if not sources else (),
            details={
                "files": list(rows.files.names),
                "schema": schema,
                "sidecars": texts,
                "columns": [[*parts, name] for parts, name in columns.roles.items()],
                "paths": columns.paths,
            },
        )
    return sources


def _require_sides(rows: ArrowFiles, roles: Mapping[tuple[str, ...], str]) -> None:
    """Raise SourceError if all boxes can only be corners: datasets on the hub do not say their format."""
    paths = {name: path for path, name in roles.items()}
    if "boxes" not in paths:
        return
    column, *inner = paths["boxes"]
    values = (value for column in rows.columns(column) for value in column.to_pylist())
    boxes = [_boxes_of(value and dig(value, inner)) for value in values]

    def sides_of(index: int) -> tuple[int, int] | None:
        image = dig(rows.row(index)[paths["image"][0]], paths["image"][1:])
        return upright_sides(_image_of(image, rows.files.folder)[0])

    if can_only_be_corners(boxes, sides_of):
        raise malformed(f"{rows.files.path(0)}, bbox", _FORMAT, "x1 y1 x2 y2", _STEP)


def _splits(path: str, root: str, left_out: LeftOutFiles) -> dict[str, tuple[list[str], list[str]]]:
    """Return for each split the data files and the JSON files of the dataset, relative to its folder."""
    if not os.path.isdir(path):
        return {"": ([os.path.basename(path)], [])}
    folder = list_entries(path)
    if _DICT in folder.files:
        names = _json(os.path.join(root, _DICT), "splits")
        if not isinstance(names, list) or not all(name in folder.folders for name in names) or not names:
            step = "write the dataset again"
            raise malformed(os.path.join(root, _DICT), "list the folders of the splits", repr(names), step)
        found = {_SPLITS.get(name.lower(), name): _saved(root, f"{name}/") for name in map(str, names)}
        return {split: (files, [_DICT, *sidecars]) for split, (files, sidecars) in found.items()}
    if _STATE in folder.files:
        return {"": _saved(root, "")}
    inner = "data/" if not any(name.lower().endswith(_SUFFIXES) for name in folder.files) else ""
    listed = list_entries(folder.join("data")).files if inner else folder.files
    data = []
    for name in listed:
        if name.lower().endswith(_SUFFIXES):
            data.append(inner + name)
        else:
            reason = clutter_reason(name)
            left_out.add(inner + name, reason or "no Arrow or Parquet file", is_clutter=bool(reason))
    return {split: (files, []) for split, files in by_split(data).items()}


def _saved(root: str, folder: str) -> tuple[list[str], list[str]]:
    """Return the files of a folder that save_to_disk wrote."""
    state = f"{folder}{_STATE}"
    entries = _json(os.path.join(root, state), "_data_files")
    try:
        names = [os.path.basename(entry["filename"]) for entry in entries]
    except (TypeError, KeyError) as error:
        raise SourceError(
            f"{os.path.join(root, state)}: must list the data files, got {entries!r}: write the dataset again"
        ) from error
    return [folder + name for name in names], [state, f"{folder}{_INFO}"]


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"{path}: must be a file that can be read, got: {error.strerror}") from error


def _json(path: str, member: str) -> Any:
    try:
        return json.loads(_read_text(path))[member]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"{path}: must be JSON with a member {member!r}, got: {error}: write the dataset again"
        ) from error


@dataclass(eq=False, kw_only=True)
class ArrowSource(ContainerSource):
    """A `Source` of the rows of Arrow or Parquet files; `roles` is the field of each column by its path."""

    rows: ArrowFiles
    roles: Mapping[tuple[str, ...], str]

    def __len__(self) -> int:
        return self.rows.ends[-1]

    def read(self, index: int) -> SourceRecord:
        """Read one row; raise SourceError, naming file and row, if a value is missing or does not fit."""
        number, place = self.rows.place(index)
        where = f"{self.unchanged(number)}, row {place}"
        row = self.rows.row(index)
        values: dict[str, object] = {"shard": number}
        described = {field.name: field for field in self.fields}
        paths = self.details["paths"]
        image = b""
        for path, name in self.roles.items():
            try:
                value = dig(row[path[0]], path[1:])
                if _has_null(value) and not (name == "image" or described[name].kind == "image"):
                    raise TypeError("a missing value")
                if name == "image" or described[name].kind == "image":
                    data, values[paths[name]] = _image_of(value, self.files.folder)
                    if name == "image":
                        image = data
                    else:
                        values[name] = data
                else:
                    values[name] = _fitted(described[name], value)
            except (TypeError, KeyError, ValueError, OSError, OverflowError) as error:
                raise SourceError(
                    f"{where}: {'.'.join(path)} must hold a value that fits its column, got: {error}: remove "
                    "the row, or fill it in"
                ) from error
        of_objects: list[Any] = [values[each.name] for each in self.fields if each.is_of_objects]
        if len(counts := sorted({len(each) for each in of_objects})) > 1:
            raise SourceError(f"{where}: objects must have all of their parts, got {counts} of them")
        if "boxes" in described and (sides := upright_sides(image)) is not None:
            boxes = np.asarray(values["boxes"], np.float64)
            require_inside(boxes, sides, f"{where}, bbox", _FORMAT, _STEP)
        return SourceRecord(self.key(index), image, values)


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _image_of(value: Any, folder: str) -> tuple[bytes, str]:
    """Return the bytes of an image and its path, "" for none; without bytes, the path names a file."""
    data, path = (value, None) if isinstance(value, bytes) else (value["bytes"], value["path"])
    if data is None:
        if path is None:
            raise TypeError("an image with neither bytes nor a path")
        with open(os.path.join(folder, path), "rb") as file:
            data = file.read()
    return data, path or ""


def _fitted(described: Field, value: Any) -> object:
    if described.kind in ("text", "bytes", "texts"):
        return value
    array = np.asarray(value, described.dtype)
    if described.kind == "scalar":
        return array.item()
    if array.shape == (0,):
        array = array.reshape(0, *described.shape)
    wanted = array.shape if described.kind == "vector" else array.shape[1:]
    if wanted != described.shape:
        raise ValueError(f"an array of shape {array.shape}")
    return array


def _boxes_of(row: Any) -> npt.NDArray[np.float64]:
    """Return the boxes of a row, none if it is malformed, which reading it reports."""
    with contextlib.suppress(TypeError, ValueError):
        return np.array(row, np.float64).reshape(-1, 4)
    return np.zeros((0, 4))
