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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastload.contracts import SourceRecord
from fastload.errors import FastloadError
from fastload.shards.schema import Field
from fastload.sources.boxes import Coordinates, Sides, require_inside, require_pixels, upright_sides
from fastload.sources.containers import SHARD, ContainerSource, claim_data_files
from fastload.sources.dataset.samples import fit
from fastload.sources.files import list_files, read_text
from fastload.sources.huggingface.columns import ArrowColumns, ArrowFiles, dig
from fastload.sources.listing import Folder, Listing, is_image
from fastload.sources.malformed import explaining, malformed
from fastload.sources.protocol import Claim, LeftOutReason, Reading
from fastload.sources.splits import by_split

_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_CACHE: LeftOutReason = "a cache of datasets", True

SUFFIXES = (".arrow", ".parquet")
REWRITE = "write the dataset again"
_FORMAT = "be x, y, width, height in pixels"
_STEP = "correct it; pack corners or fractions from Python: fastload.pack(dataset, 'DEST.fl', fields=…)"


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of `save_to_disk`, or one of Arrow and Parquet files alone, also in `data`."""
    names = {*listing.top.others}
    sign = next((name for name in (_DICT, _STATE) if name in names), "")
    if sign == _DICT or (sign and _INFO in names):
        return Claim(sign, lambda: _saved(listing))
    return claim_data_files(listing, SUFFIXES, list_rows, "data")


def recognise_file(path: str) -> Claim | None:
    """Claim an .arrow or .parquet file."""
    folder, name = os.path.split(os.path.abspath(path))
    is_data = path.lower().endswith(SUFFIXES)
    return Claim(path, lambda: Reading(list_rows(path, folder, {"": [name]}))) if is_data else None


def _saved(listing: Listing) -> Reading:
    """Return the reading of a folder that `save_to_disk` wrote."""
    folders = {"": listing.top}
    if _DICT in listing.top.others:
        where = listing.absolute(_DICT)
        names = _json(where, "splits")
        if not isinstance(names, list) or not names or not all(name in listing.top.folders for name in names):
            raise malformed(where, "list the folders of the splits", repr(names), REWRITE)
        folders = by_split(where, {name: listing[name] for name in names})
    data = {split: _state_files(listing, folder) for split, folder in folders.items()}
    sidecars = [folder.join(name) for folder in folders.values() for name in (_STATE, _INFO)]
    sidecars += [] if "" in folders else [_DICT]
    caches = (
        folder.join(name)
        for folder in folders.values()
        for name in folder.others
        if name.startswith("cache-") and name.endswith(".arrow")
    )
    rows = list_rows(listing.name, listing.root, data)
    return Reading(rows, sidecars, dict.fromkeys(caches, _CACHE))


def _state_files(listing: Listing, folder: Folder) -> list[str]:
    """Return the data files that a folder states, in their order."""
    state = listing.absolute(folder.join(_STATE))
    entries = _json(state, "_data_files")
    try:
        return [folder.join(os.path.basename(entry["filename"])) for entry in entries]
    except (TypeError, KeyError) as error:
        raise malformed(state, "list the data files", repr(entries), REWRITE) from error


def _json(path: str, member: str) -> Any:
    errors = (ValueError, LookupError, TypeError, RecursionError)
    with explaining(errors, path, f"be JSON with a member {member!r}", REWRITE):
        return json.loads(read_text(path))[member]


def list_rows(path: str, root: str, data: Mapping[str, Sequence[str]]) -> dict[str, ArrowSource]:
    """List the rows of data files, which are given by split, relative to the folder `root`."""
    sources: dict[str, ArrowSource] = {}
    for split, names in data.items():
        if not names:
            raise malformed(path, "name data files in its state.json", "none", REWRITE)
        rows = ArrowFiles(list_files(root, names))
        columns = ArrowColumns(rows)
        has_images = "image" in columns.roles.values()
        if not columns.fields:
            raise malformed(path, "have a column", "none", REWRITE)
        if has_images:
            _require_pixels(rows, columns.roles)
        else:
            _require_no_names(rows)
        sources[split] = ArrowSource(
            kind="huggingface",
            name=path,
            classes=columns.classes,
            fields=(*columns.fields, SHARD),
            files=rows.files,
            shard_of=np.repeat(np.arange(len(names)), np.diff([0, *rows.ends])),
            rows=rows,
            roles=columns.roles,
            paths=columns.paths,
            has_images=has_images,
            warnings=() if has_images else (f"{path}: no column is of images: packed without them",),
            details={
                "files": list(rows.files.names),
                "schema": base64.b64encode(rows.schema.serialize().to_pybytes()).decode(),
                "columns": [[*parts, name] for parts, name in columns.roles.items()],
                "paths": columns.paths,
            },
        )
    return sources


def _require_no_names(rows: ArrowFiles) -> None:
    """Raise SourceError if a column holds the names of image files beside the data."""
    folder = rows.files.folder
    for column, value in (rows.row(0) if rows.ends[-1] else {}).items():
        if isinstance(value, str) and is_image(value) and os.path.isfile(os.path.join(folder, value)):
            where, step = f"{rows.files.path(0)}, column {column!r}", "write a .csv of it, and pack that"
            raise malformed(where, "hold images, or none", f"{value!r}, which names a file", step)


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

    boxes: list[Coordinates] = []
    for value in values:
        boxes.append(np.zeros((0, 4)))
        with contextlib.suppress(TypeError, ValueError):  # reading the row reports it
            boxes[-1] = np.array(value and dig(value, inner), np.float64).reshape(-1, 4)
    require_pixels(f"{rows.files.path(0)}, bbox", _FORMAT, _STEP, boxes, sides_of)


@dataclass(eq=False, kw_only=True)
class ArrowSource(ContainerSource):
    """A `Source` of the rows of Arrow or Parquet files.

    `roles` maps the path of each column to its field, and `paths` an image's field to that of its path.
    """

    rows: ArrowFiles
    roles: Mapping[tuple[str, ...], str]
    paths: Mapping[str, str]

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
                if name in self.paths:
                    values[name], values[self.paths[name]] = _image_of(value, self.files.folder)
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


def _has_null(value: object) -> bool:
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


def _fitted(described: Field, value: object) -> object:
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
