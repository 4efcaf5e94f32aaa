"""Tables with a row for each object, which become images with boxes.

The headers show the box; capitals, `_`, and `bbox` before the rest do not matter:

    xmin,ymin,xmax,ymax    corners, as of TensorFlow and Roboflow; also x1,y1,x2,y2 and left,top,right,bottom
    x,y,w,h                the upper left corner and the sides; x,y,width,height
    cx,cy,w,h              the center and the sides; xcenter,ycenter,width,height
    bbox                   one cell `[x, y, width, height]`, as of Kaggle's tables

They are pixels, or, if none is larger than 1, fractions of the image. The class is in the column `label`,
`class`, `category`, `name` or similar; without one, all objects have the class "object". `width` and `height`
beside a box are the image's. Other columns are fields: of the image where all of its rows agree, else of its
objects. A row with empty cells for the box is an image without objects. Rows may come in any order.
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
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.shards.schema import BoxFormat, Field
from fastload.sources._annotated import (
    AnnotatedFiles,
    AnnotationReader,
    Size,
    Values,
    require_size,
    upright_sides,
)
from fastload.sources._columns import ColumnKind, TableColumn, free_field_name
from fastload.sources._malformed import can_only_be_corners, malformed, numbers_of, require_inside
from fastload.sources.files import FileList, NameTable, list_files

_BOXES: Mapping[tuple[str, ...], BoxFormat] = {
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("left", "top", "right", "bottom"): "xyxy",
    ("x", "y", "w", "h"): "xywh",
    ("x", "y", "width", "height"): "xywh",
    ("cx", "cy", "w", "h"): "cxcywh",
    ("xcenter", "ycenter", "width", "height"): "cxcywh",
    ("bbox",): "xywh",
}
OBJECT_HEADER = "image,xmin,ymin,xmax,ymax,label"
_MEANINGS = {"xyxy": "x1 y1 x2 y2", "xywh": "x, y, width, height", "cxcywh": "center x, y, width, height"}
_CLASSES = ("label", "class", "category", "classname", "categoryname", "name", "classid", "categoryid")
_SIZE = ("height", "width")


@dataclass(frozen=True, slots=True)
class BoxColumns:
    """The columns of an object's box, and of its class (-1 for none) and its image's height and width."""

    format: BoxFormat
    box: tuple[int, ...]
    label: int
    size: tuple[int, ...]


def find_boxes(names: Sequence[str], given: Mapping[str, ColumnKind]) -> BoxColumns | None:
    """Return the columns of boxes by the headers of a table; None for one with a row for each image.

    So is one whose columns of boxes are given a kind.
    """
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in names]
    plain = [name.removeprefix("bbox") or name for name in plain]
    for box, box_format in _BOXES.items():
        if {*box} <= {*plain}:
            at = tuple(plain.index(name) for name in box)
            labels = [plain.index(name) for name in _CLASSES if name in plain]
            has_size = {*_SIZE} <= {*plain} - {*box}
            size = tuple(plain.index(name) for name in _SIZE) if has_size else ()
            is_given = any(names[place] in given for place in at)
            return None if is_given else BoxColumns(box_format, at, next(iter(labels), -1), size)
    return None


@dataclass(frozen=True, slots=True)
class ObjectReader(AnnotationReader):
    """Reader of an image's rows, as JSON: lists of cells, boxes, labels and the values of `others`."""

    boxes: Field
    others: tuple[Field, ...]

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of each image; `rows` holds its rows as they are."""
        return self.boxes, Field.labels(), *self.others, Field("rows", "texts", internal=True)

    def read(self, text: bytes, size: Size, where: str) -> tuple[Values, tuple[str, ...]]:
        content = json.loads(text)
        require_size(content["size"], size, where)
        sides = (1, 1) if self.boxes.relative else (size[1], size[0])
        for number, box in content["boxes"]:
            place = f"{where}, row {number}"
            if isinstance(box, str):
                raise malformed(place, f"have {_MEANINGS[self.boxes.format or '']}, finite numbers", box)
            units = "as fractions" if self.boxes.relative else "in pixels"
            require_inside(_to_sides(box, self.boxes.format), sides, place, f"have a box {units}")
        values: Values = {field.name: _value(field, content["others"][field.name]) for field in self.others}
        values["boxes"] = np.array([box for _, box in content["boxes"]], np.float64).reshape(-1, 4)
        values["labels"] = np.array(content["labels"], np.int64)
        values["rows"] = [json.dumps(row) for row in content["rows"]]
        return values, ()


def list_objects(
    path: str, header: Sequence[str], table: Sequence[TableColumn], image: TableColumn, found: BoxColumns
) -> AnnotatedFiles:
    """List the images of a table whose rows are objects, in the order in which it first names them."""
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(image.cells):
        rows_of.setdefault(name, []).append(row)
    if "" in rows_of:
        step = "fill it in, or leave the row out"
        raise image.error(rows_of[""][0] + 1, "name an image", "an empty cell", step)
    cells = list(zip(*(column.cells for column in table), strict=True))
    boxes = {
        row: _box([mine[at] for at in found.box])
        for row, mine in enumerate(cells)
        if any(mine[at].strip() for at in found.box)
    }
    if not boxes:
        raise malformed(path, "have a box in one row or more", "none", "check its columns")
    files = list_files(image.folder, rows_of)
    names = ", ".join(repr(table[at].name) for at in found.box)
    largest = max((max(box) for box in boxes.values() if isinstance(box, list)), default=0.0)
    field = Field.boxes(found.format, relative=0 < largest <= 1)
    if found.format == "xywh":
        parsed = [[boxes.get(row) for row in own] for own in rows_of.values()]
        _require_sides(path, names, field, files, parsed)
    labels, meaning = [0] * len(cells), "0 for all: no column has a name for classes"
    classes: tuple[str, ...] = ("object",)
    if found.label >= 0:
        labels, classes, meaning = _labels(path, table[found.label], boxes)
    taken = {"image", "boxes", "labels", "rows"}
    used = {table.index(image), *found.box, found.label}
    others = [
        _other(path, column, rows_of.values(), taken) for at, column in enumerate(table) if at not in used
    ]
    texts = NameTable()
    for own in rows_of.values():
        objects = [row for row in own if row in boxes]
        content = {
            "rows": [[row, *cells[row]] for row in own],
            "boxes": [[row + 1, boxes[row]] for row in objects],
            "labels": [labels[row] for row in objects],
            "others": {
                other.name: [values[row] for row in objects] if other.per_object else values[own[0]]
                for other, _, values in others
            },
            "size": numbers_of([cells[own[0]][at] for at in found.size]) or (None, None),
        }
        texts.append(json.dumps(content))
    reader = ObjectReader(field, tuple(other for other, _, _ in others))
    units = "as fractions of the image" if field.relative else "in pixels"
    return AnnotatedFiles(
        kind="table",
        name=path,
        classes=classes,
        fields=reader.fields(),
        columns={
            "image": f"paths of the images, {image.origin}, with a row for each object",
            "boxes": f"{_MEANINGS[found.format]} {units}, of the columns {names}",
            "labels": meaning,
            **{other.name: meaning for other, meaning, _ in others},
        },
        details={
            "table": os.path.basename(path),
            "header": header,
            "objects": {"image": table.index(image), "box": found.box, "size": found.size},
        },
        files=files,
        texts=texts,
        origin=path,
        reader=reader,
    )


def _box(cells: Sequence[str]) -> list[float] | str:
    """Return the four numbers of a box; the cells as they are if these are no such numbers."""
    texts = cells if len(cells) > 1 else re.split(r"[\s,;]+", cells[0].strip("[]() "))
    numbers = numbers_of(texts)
    return numbers if numbers is not None and len(numbers) == 4 else ", ".join(cells)


def _labels(
    path: str, column: TableColumn, boxes: Mapping[int, object]
) -> tuple[list[int], tuple[str, ...], str]:
    """Return the label of each row, of which those without a box need none, the classes, and their origin."""
    some_class = column.cells[next(iter(boxes))]
    cells = (cell or ("" if row in boxes else some_class) for row, cell in enumerate(column.cells))
    found = replace(column, cells=NameTable(cells)).to_labels()
    labels = [] if found is None else _listed(found.values)
    if found is None or min(labels) < 0:
        step = "name the classes, or number them from 0"
        raise malformed(path, f"have classes in the column {column.name!r}", "other numbers", step)
    return labels, found.classes, found.meaning


def _other(
    path: str, column: TableColumn, groups: Iterable[Sequence[int]], taken: set[str]
) -> tuple[Field, str, list[Any]]:
    """Return the field of a further column, its meaning, and its values by row.

    It is a field of the image if the rows of every image agree, else of its objects.
    """
    found = column.to_field(free_field_name(column.name, taken))
    if found.field.kind == "image":
        got = f"the column {column.name!r}"
        raise malformed(path, "hold no further images beside boxes", got, "leave it out")
    field, cells = found.field, [*column.cells]
    if any(len({cells[row] for row in own}) > 1 for own in groups):
        field = replace(field, kind="texts" if field.kind == "text" else "ragged", per_object=True)
    return field, found.meaning, _listed(found.values)


def _listed(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else [*values]


def _require_sides(
    path: str, names: str, field: Field, files: FileList, boxes: Sequence[Sequence[object]]
) -> None:
    """Raise SourceError if x, y, width, height are fractions, or can only be corners."""
    parsed = [np.array([box for box in own if isinstance(box, list)]).reshape(-1, 4) for own in boxes]
    got = "fractions" if field.relative else "x1 y1 x2 y2"

    def sides_of(index: int) -> tuple[int, int] | None:
        with contextlib.suppress(SourceError):  # packing says so
            return upright_sides(files.read(index))
        return None

    if field.relative or can_only_be_corners(parsed, sides_of):
        step = "name them xmin,ymin,xmax,ymax, or cx,cy,w,h for the center; a kind (--column) keeps numbers"
        raise malformed(path, f"have x, y, width, height in pixels in {names}", got, step)


def _value(field: Field, value: Any) -> object:
    return np.array(value, field.dtype) if field.kind == "ragged" else value


def _to_sides(box: Sequence[float], box_format: str | None) -> npt.NDArray[np.float64]:
    """Return a box of a format as one x, y, width, height: (1, 4)."""
    first, second = np.array(box[:2]), np.array(box[2:])
    if box_format == "xyxy":
        second = second - first
    elif box_format == "cxcywh":
        first = first - second / 2
    return np.concatenate([first, second])[None]
