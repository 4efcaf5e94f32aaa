"""Hugging Face datasets on disk as sources: folders of save_to_disk, .arrow cache files, and Parquet files.

The columns determine the fields, by their Arrow types and the features that `datasets` stores in the schema:

    Image                         the image, then further images; without bytes, the file at the path is read
    ClassLabel                    the label and the classes; a second one becomes an integer field
    numbers, text, binary         scalar, text and bytes fields
    lists of numbers              vectors if their length is fixed, else ragged fields
    lists of text                 texts fields
    objects {bbox, category, …}   boxes (x, y, width, height in pixels, as in COCO), labels, and per-object
                                  fields of the other parts
    other structs                 a field for each part, `NAME_PART`

Without a column of images, records have none, and objects are a field for each part.
A missing value is an error when its row is read; a column of another type is one when the source is opened.
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

from fastload.errors import FastloadError
from fastload.shards.schema import Field
from fastload.sources.boxes import Coordinates, Sides, require_inside, require_pixels, upright_sides
from fastload.sources.containers import SHARD, ContainerSource, files_by_split, holds_only, list_data_files
from fastload.sources.dataset.samples import fit
from fastload.sources.files import list_files, read_text
from fastload.sources.huggingface.arrow import ArrowFiles
from fastload.sources.huggingface.columns import ArrowColumns, dig
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.malformed import explaining, malformed
from fastload.sources.protocol import SourceRecord
from fastload.sources.walking import by_split, list_entries

_SUFFIXES = (".arrow", ".parquet")
_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_FORMAT = "be x, y, width, height in pixels"
_STEP = "correct it; pack corners or fractions from Python: fastload.pack(dataset, 'DEST.fl', fields=…)"
_REWRITE = "write the dataset again"


def open_huggingface(path: str) -> dict[str, ArrowSource] | None:
    """List an .arrow or .parquet file, or a folder of such files alone, by split."""
    if not _is_huggingface(path):
        return None
    left_out = LeftOutFiles()
    root = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path) or ".")
    sources: dict[str, ArrowSource] = {}
    for split, (names, sidecars) in _splits(path, root, left_out).items():
        if not names:
            raise malformed(path, f"name data files in {_STATE}", "none", _REWRITE)
        rows = ArrowFiles(list_files(root, names))
        columns = ArrowColumns(rows)
        has_images = "image" in columns.roles.values()
        if not columns.fields:
            raise malformed(path, "have a column", "none", _REWRITE)
        if has_images:
            _require_pixels(rows, columns.roles)
        sources[split] = ArrowSource(
            kind="huggingface",
            name=path,
            classes=columns.classes,
            fields=(*columns.fields, SHARD),
            files=rows.files,
            shard_of=np.repeat(np.arange(len(names)), np.diff([0, *rows.ends])),
            rows=rows,
            roles=columns.roles,
            has_images=has_images,
            warnings=() if has_images else (f"{path}: no column is of images: packed without them",),
            left_out=left_out.finish() if not sources else (),
            details={
                "files": list(rows.files.names),
                "schema": base64.b64encode(rows.schema.serialize().to_pybytes()).decode(),
                "sidecars": {name: read_text(os.path.join(root, name)) for name in sidecars},
                "columns": [[*parts, name] for parts, name in columns.roles.items()],
                "paths": columns.paths,
            },
        )
    return sources


def _is_huggingface(path: str) -> bool:
    if not os.path.isdir(path):
        return path.lower().endswith(_SUFFIXES)
    folder = list_entries(path)
    is_saved = _DICT in folder.files or {_STATE, _INFO} <= {*folder.files}
    return is_saved or holds_only(folder.join("data" if folder.folders == ["data"] else ""), _SUFFIXES)


def _require_pixels(rows: ArrowFiles, roles: Mapping[tuple[str, ...], str]) -> None:
    """Raise SourceError if boxes can only be corners or fractions: no schema states their format."""
    paths = {name: path for path, name in roles.items()}
    if "boxes" not in paths:
        return
    column, *inner = paths["boxes"]
    values = (value for column in rows.columns(column) for value in column.to_pylist())

    def sides_of(index: int) -> Sides | None:
        with contextlib.suppress(FastloadError, OSError, TypeError):  # reading the row reports it
            image = dig(rows.row(index)[paths["image"][0]], paths["image"][1:])
            return upright_sides(_image_of(image, rows.files.folder)[0])
        return None

    boxes = [_boxes_of(value and dig(value, inner)) for value in values]
    require_pixels(f"{rows.files.path(0)}, bbox", _FORMAT, _STEP, boxes, sides_of)


def _splits(path: str, root: str, left_out: LeftOutFiles) -> dict[str, tuple[list[str], list[str]]]:
    """Return the data files and the JSON files of each split, relative to the folder of the dataset."""
    if not os.path.isdir(path):
        return {"": ([os.path.basename(path)], [])}
    folder = list_entries(root)
    if _DICT in folder.files:
        names = _json(folder.join(_DICT), "splits")
        if not isinstance(names, list) or not all(name in folder.folders for name in names) or not names:
            must = "list the folders of the splits"
            raise malformed(folder.join(_DICT), must, repr(names), _REWRITE)
        found = by_split(folder.join(_DICT), {name: _saved(root, f"{name}/") for name in names})
        return {split: (files, [_DICT, *sidecars]) for split, (files, sidecars) in found.items()}
    if _STATE in folder.files:
        return {"": _saved(root, "")}
    data = list_data_files(root, _SUFFIXES, ["data"], left_out, "no Arrow or Parquet file")
    return {split: (files, []) for split, files in files_by_split(data).items()}


def _saved(root: str, folder: str) -> tuple[list[str], list[str]]:
    """Return the data files and the JSON files of a folder that save_to_disk wrote."""
    state = os.path.join(root, folder, _STATE)
    entries = _json(state, "_data_files")
    try:
        names = [os.path.basename(entry["filename"]) for entry in entries]
    except (TypeError, KeyError) as error:
        raise malformed(state, "list the data files", repr(entries), _REWRITE) from error
    return [folder + name for name in names], [folder + _STATE, folder + _INFO]


def _json(path: str, member: str) -> Any:
    errors = (ValueError, LookupError, TypeError, RecursionError)
    with explaining(errors, path, f"be JSON with a member {member!r}", _REWRITE):
        return json.loads(read_text(path))[member]


@dataclass(eq=False, kw_only=True)
class ArrowSource(ContainerSource):
    """A `Source` of the rows of Arrow or Parquet files; `roles` maps the path of each column to its field."""

    rows: ArrowFiles
    roles: Mapping[tuple[str, ...], str]

    def read_from(self, path: str, index: int) -> SourceRecord:
        """Read one row; raise SourceError if a value is missing or does not fit."""
        where = f"{path}, row {self.rows.place(index)[1]}"
        row = self.rows.row(index)
        values: dict[str, Any] = {}
        described = {field.name: field for field in self.fields}
        errors = (TypeError, KeyError, ValueError, OSError, OverflowError)
        must, step = "hold a value that fits its column", "remove the row, or fill it in"
        for column, name in self.roles.items():
            with explaining(errors, f"{where}, {'.'.join(column)}", must, step):
                value = dig(row[column[0]], column[1:])
                if name in self.details["paths"]:
                    values[name], values[self.details["paths"][name]] = _image_of(value, self.files.folder)
                else:
                    values[name] = _fitted(described[name], value)
        image = values.pop("image", None)
        counts = sorted({len(values[each.name]) for each in self.fields if each.is_of_objects})
        if len(counts) > 1:
            raise malformed(f"{where}, objects", "have all of their parts", f"{counts} of them")
        if image is not None and "boxes" in described and (sides := upright_sides(image)) is not None:
            boxes = np.asarray(values["boxes"], np.float64)
            require_inside(boxes, sides, f"{where}, bbox", _FORMAT, boxes.tolist(), _STEP)
        return SourceRecord(self.key(index), image, values)


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _image_of(value: Any, folder: str) -> tuple[bytes, str]:
    """Return the bytes of an image and its path, "" for none; without bytes, read the file at the path."""
    data, path = (value, None) if isinstance(value, bytes) else (value["bytes"], value["path"])
    if data is None:
        if path is None:
            raise TypeError("an image with neither bytes nor a path")
        with open(os.path.join(folder, path), "rb") as file:
            data = file.read()
    return data, path or ""


def _fitted(described: Field, value: Any) -> object:
    """Return a value in the type of its field; raise an error if a part is missing or does not fit."""
    if _has_null(value):
        raise TypeError("a missing value")
    if described.kind in ("text", "bytes", "texts"):
        return value
    array = np.asarray(value, described.dtype)
    fitted = fit(described, array)
    if fitted is None:
        raise ValueError(f"an array of shape {array.shape}")
    return fitted.item() if described.kind == "scalar" else fitted


def _boxes_of(row: Any) -> Coordinates:
    """Return the boxes of a row; none if it is malformed, which is reported when the row is read."""
    with contextlib.suppress(TypeError, ValueError):
        return np.array(row, np.float64).reshape(-1, 4)
    return np.zeros((0, 4))
