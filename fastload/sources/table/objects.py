"""Tables with one row per object, listed as images with boxes.

The headers determine the format of the boxes; case, underscores and the prefix `bbox` are ignored:

    xmin,ymin,xmax,ymax    corners, as in TensorFlow and Roboflow; also x1,y1,x2,y2, x0,y0,x1,y1 and
                           left,top,right,bottom
    x,y,w,h                the upper left corner and the sides, also headed width,height, and x1,y1, xmin,ymin
                           or left,top (CelebA)
    cx,cy,w,h              the center and the sides; xcenter,ycenter,width,height
    bbox                   one cell `[x, y, width, height]`, as in Kaggle's tables

Coordinates are pixels or, if none is larger than 1, fractions of the image. The class is in the column of the
kind `label`, else in the one headed `label`, `class`, `category`, `name` or similar; without one, all objects
have the class "object", but a column of texts, which may be the classes, needs a kind. `width` and `height`
that are not part of the box are the size of the image. Every other column becomes a field: of the image if
the rows of each image agree, else of its objects. A row with empty cells for the box is an image without
objects. Rows may come in any order.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastload.errors import SourceError
from fastload.images.arrays import Size
from fastload.shards.schema import BoxFormat, Field
from fastload.sources.annotated import AnnotatedFiles, AnnotationReader, ImageValues, require_size
from fastload.sources.boxes import Sides, require_inside, require_pixels, to_xywh, upright_sides
from fastload.sources.files import list_files
from fastload.sources.malformed import malformed, numbers_of
from fastload.sources.names import NameTable
from fastload.sources.table.columns import (
    LABEL,
    ColumnKind,
    TableColumn,
    free_field_name,
)
from fastload.sources.table.numbers import numbers_in, value_of

_BOXES: Mapping[tuple[str, ...], BoxFormat] = {
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("x0", "y0", "x1", "y1"): "xyxy",
    ("left", "top", "right", "bottom"): "xyxy",
    **{
        (*corner, *sides): "xywh"
        for corner in (("x", "y"), ("x1", "y1"), ("xmin", "ymin"), ("left", "top"))
        for sides in (("w", "h"), ("width", "height"))
    },
    ("cx", "cy", "w", "h"): "cxcywh",
    ("xcenter", "ycenter", "width", "height"): "cxcywh",
    ("bbox",): "xywh",
}
OBJECT_HEADER = "image,xmin,ymin,xmax,ymax,label"
_MEANINGS = {"xyxy": "x1 y1 x2 y2", "xywh": "x, y, width, height", "cxcywh": "center x, y, width, height"}
_CLASSES = (
    *("label", "class", "category", "labelname", "classname", "categoryname", "name"),
    *("labelid", "classid", "categoryid"),
)
_SIZE = ("height", "width")


@dataclass(frozen=True, slots=True)
class BoxColumns:
    """Indices of the columns of an object's box, its class (-1 for none) and its image's height and width."""

    format: BoxFormat
    box: tuple[int, ...]
    label: int
    size: tuple[int, ...]

    def has_box(self, cells: Sequence[str]) -> bool:
        """Return True if a row is an object; an image without objects has a row without a box."""
        return any(cells[at].strip() for at in self.box)

    def box_of(self, cells: Sequence[str]) -> list[float] | None:
        """Return the four numbers of a row's box; None if its cells hold anything else."""
        texts = [cells[at] for at in self.box]
        if len(texts) == 1:
            texts = re.split(r"[\s,;]+", texts[0].strip("[]() "))
        return numbers_of(texts) if len(texts) == 4 else None


def find_boxes(table: Sequence[TableColumn], given: Mapping[str, ColumnKind]) -> BoxColumns | None:
    """Return the box columns that a table's headers name; None if its rows are images, not objects.

    Columns to which the user gives a kind are not taken for boxes.
    """
    names = [column.name for column in table]
    plain = [column.plain_name.removeprefix("bbox") or column.plain_name for column in table]
    for box, box_format in _BOXES.items():
        if {*box} <= {*plain}:
            at = tuple(plain.index(name) for name in box)
            labels = [place for place, name in enumerate(names) if given.get(name) == LABEL]
            labels += [plain.index(name) for name in _CLASSES if name in plain]
            has_size = {*_SIZE} <= {*plain} - {*box}
            size = tuple(plain.index(name) for name in _SIZE) if has_size else ()
            is_given = any(names[place] in given for place in at)
            return None if is_given else BoxColumns(box_format, at, next(iter(labels), -1), size)
    return None


@dataclass(frozen=True, slots=True)
class ObjectReader(AnnotationReader):
    """Reader of an image's rows as JSON, each a list of the row's index and its cells.

    `labels` gives the label of each class, and is empty if all labels are 0; `others` gives the fields of
    further columns by their indices.
    """

    columns: BoxColumns
    boxes: Field
    labels: Mapping[str, int]
    others: Mapping[int, Field]

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of each image; `rows` holds its rows as they are."""
        rows = Field("rows", "texts", internal=True)
        return self.boxes, Field.labels(), *self.others.values(), rows

    def read(self, text: bytes, size: Size, where: str) -> tuple[ImageValues, tuple[str, ...]]:
        rows = json.loads(text)
        found = self.columns
        first = rows[0][1:]
        require_size(numbers_of([first[at] for at in found.size]) or (None, None), size, where)
        sides = (1, 1) if self.boxes.relative else (size[1], size[0])
        units = "as fractions" if self.boxes.relative else "in pixels"
        objects = [(row, cells) for row, *cells in rows if found.has_box(cells)]
        boxes = []
        for row, cells in objects:
            place = f"{where}, row {row + 1}"
            box = found.box_of(cells)
            got = ", ".join(cells[at] for at in found.box)
            if box is None:
                raise malformed(place, f"have {_MEANINGS[found.format]}, finite numbers", got)
            boxes.append(box)
            require_inside(to_xywh(np.array([box]), found.format), sides, place, f"have a box {units}", [got])
        values: ImageValues = {
            "boxes": np.array(boxes, np.float64).reshape(-1, 4),
            "labels": np.array([self.labels.get(cells[found.label], 0) for _, cells in objects], np.int64),
            "rows": [json.dumps(row) for row in rows],
        }
        for at, field in self.others.items():
            if field.kind == "texts":
                values[field.name] = [cells[at] for _, cells in objects]
            elif field.per_object:
                values[field.name] = np.array(
                    [value_of(field, cells[at]) for _, cells in objects], field.dtype
                )
            else:
                values[field.name] = value_of(field, first[at])
        return values, ()


def list_objects(
    path: str, header: Sequence[str], table: Sequence[TableColumn], image: TableColumn, found: BoxColumns
) -> AnnotatedFiles:
    """List the images of a table whose rows are objects, in order of first appearance."""
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(image.to_files().names):
        rows_of.setdefault(name, []).append(row)
    rows = list(zip(*(column.cells for column in table), strict=True))
    boxes = {row: found.box_of(cells) for row, cells in enumerate(rows) if found.has_box(cells)}
    if not boxes:
        raise malformed(path, "have a box in one row or more", "none", "check its columns")
    files = list_files(image.folder, rows_of)
    names = ", ".join(repr(table[at].name) for at in found.box)
    largest = max((max(box) for box in boxes.values() if box is not None), default=0.0)
    field = Field.boxes(found.format, relative=0 < largest <= 1)

    def sides_of(index: int) -> Sides | None:
        with contextlib.suppress(SourceError):  # packing reports it
            return upright_sides(files.read(index))
        return None

    if found.format == "xywh":
        step = "name them xmin,ymin,xmax,ymax, or cx,cy,w,h for the center; a kind (--column) keeps numbers"
        grouped = ([boxes[row] for row in own if boxes.get(row) is not None] for own in rows_of.values())
        every = [np.array(each, np.float64).reshape(-1, 4) for each in grouped]
        require_pixels(path, f"have x, y, width, height in pixels in {names}", step, every, sides_of)
    labels: dict[str, int] = {}
    classes: tuple[str, ...] = ("object",)
    meaning = "0 for all: no column has a name for classes"
    if found.label < 0:
        _require_no_classes(path, [column for at, column in enumerate(table) if at not in found.box], image)
    else:
        labels, classes, meaning = _labels(path, table[found.label], boxes)
    taken = {"image", "boxes", "labels", "rows"}
    used = {table.index(image), *found.box, found.label}
    others = {
        at: _other(path, column, rows_of.values(), taken) for at, column in enumerate(table) if at not in used
    }
    reader = ObjectReader(found, field, labels, {at: each for at, (each, _) in others.items()})
    texts = (json.dumps([[row, *rows[row]] for row in own]) for own in rows_of.values())
    units = "as fractions of the image" if field.relative else "in pixels"
    return AnnotatedFiles(
        kind="table",
        name=path,
        classes=classes,
        fields=reader.fields(),
        columns={
            "image": f"{image.naming or 'paths of the images'}, {image.origin}, with a row for each object",
            "boxes": f"{_MEANINGS[found.format]} {units}, of the columns {names}",
            "labels": meaning,
            **{each.name: each_meaning for each, each_meaning in others.values()},
        },
        details={
            "table": os.path.basename(path),
            "header": header,
            "objects": {"image": table.index(image), "box": found.box, "size": found.size},
        },
        files=files,
        texts=NameTable(texts),
        origin=path,
        reader=reader,
    )


def _require_no_classes(path: str, columns: Iterable[TableColumn], image: TableColumn) -> None:
    """Raise SourceError if one of the columns beside the boxes may hold the classes."""
    for column in columns:
        if column is not image and column.kind is None and numbers_in(column.cells) is None:
            options = column.options(label="its cells are the classes", text="all objects are of one class")
            must = f"have a column headed {', '.join(_CLASSES[:4])} or similar for the classes of its boxes"
            raise malformed(path, must, f"the texts of {column.name!r}", f"pack with {options}")


def _labels(
    path: str, column: TableColumn, boxes: Mapping[int, object]
) -> tuple[dict[str, int], tuple[str, ...], str]:
    """Return the label of each class, the classes, and a description of their origin."""
    some_class = column.cells[next(iter(boxes))]
    # A row without a box needs no class.
    cells = [cell or ("" if row in boxes else some_class) for row, cell in enumerate(column.cells)]
    found = replace(column, cells=NameTable(cells)).to_labels()
    labels: Any = [] if found is None else found.values
    if found is None or min(labels) < 0:
        step = "name the classes, or number them from 0"
        raise malformed(path, f"have classes in the column {column.name!r}", "other numbers", step)
    return dict(zip(cells, labels.tolist(), strict=True)), found.classes, found.meaning


def _other(
    path: str, column: TableColumn, groups: Iterable[Sequence[int]], taken: set[str]
) -> tuple[Field, str]:
    """Return the field of a further column, and its meaning.

    The field belongs to the image if the rows of every image agree, else to its objects.
    """
    found = column.to_field(free_field_name(column.name, taken))
    if found.field.kind == "image":
        got = f"the column {column.name!r}"
        raise malformed(path, "hold no further images beside boxes", got, "leave it out")
    field, cells = found.field, [*column.cells]
    if any(len({cells[row] for row in own}) > 1 for own in groups):
        field = replace(field, kind="texts" if field.kind == "text" else "ragged", per_object=True)
    return field, found.meaning
