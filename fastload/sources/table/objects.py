"""Tables with one row per object, listed as images with boxes; docs/packing.md has the rules.

The headers determine the format of the boxes. Coordinates are pixels or, if none is larger than 1, fractions
of the image. Without a column for the classes, all objects have the class "object", but a column of texts,
which may be the classes, needs a kind. `width` and `height` that are not part of the box are the size of the
image. Every other column becomes a field: of the image if the rows of each image agree, else of its objects.
A row with empty cells for the box is an image without objects. Rows may come in any order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fastload.contracts import SourceRecord
from fastload.errors import SourceError
from fastload.shards.schema import BoxFormat, Field
from fastload.sources.boxes import Sides, require_inside, require_pixels, to_xywh, upright_sides
from fastload.sources.file_source import AnnotatedFiles, ImageValues, require_size
from fastload.sources.files import NameTable, Values, digest_of, list_files, value_at
from fastload.sources.malformed import malformed, numbers_of
from fastload.sources.table.cells import Table
from fastload.sources.table.columns import LABEL, LabelField, TableColumn, TableField, free_field_name
from fastload.sources.table.numbers import floats_of, numbers_in

# By headers without case, underscores and the prefix `bbox`: as in TensorFlow and Roboflow, CelebA, Kaggle.
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


def find_boxes(table: Table) -> BoxColumns | None:
    """Return the box columns that a table's headers name; None if its rows are images, not objects.

    Columns to which the user gives a kind are not taken for boxes.
    """
    names = [column.name for column in table.columns]
    plain = [column.plain_name.removeprefix("bbox") or column.plain_name for column in table.columns]
    for box, box_format in _BOXES.items():
        if {*box} <= {*plain}:
            at = tuple(plain.index(name) for name in box)
            labels = [place for place, name in enumerate(names) if table.given.get(name) == LABEL]
            labels += [plain.index(name) for name in _CLASSES if name in plain]
            has_size = {*_SIZE} <= {*plain} - {*box}
            size = tuple(plain.index(name) for name in _SIZE) if has_size else ()
            is_given = any(names[place] in table.given for place in at)
            return None if is_given else BoxColumns(box_format, at, next(iter(labels), -1), size)
    return None


@dataclass(eq=False, kw_only=True)
class ObjectSource(AnnotatedFiles):
    """A `Source` of the images of a table whose rows are objects.

    `order` holds the rows by image, those of image i from `starts[i]` to `starts[i + 1]`. Rows without a box
    are no objects; malformed boxes are NaN. `others` holds the labels, and the values of further columns.
    """

    found: BoxColumns
    cells: Sequence[NameTable]
    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    has_box: npt.NDArray[np.bool_]
    boxes: npt.NDArray[np.float64]
    others: Mapping[str, Values]

    def read(self, index: int) -> SourceRecord:
        """Read an image and its objects; raise SourceError, naming file and row, if either is malformed."""
        image = self.files.read(index)
        size = self._size(image, self.files.path(index))
        rows = self.order[self.starts[index] : self.starts[index + 1]]
        first, objects = int(rows[0]), rows[self.has_box[rows]]
        where = f"{self.name}, image {self.key(index)!r}"
        stated = numbers_of([self.cells[at][first] for at in self.found.size])
        require_size(stated or (None, None), size, where)
        described = {field.name: field for field in self.fields}
        is_relative = described["boxes"].relative
        sides, units = ((1, 1), "as fractions") if is_relative else ((size[1], size[0]), "in pixels")
        for row in objects.tolist():
            box, place = self.boxes[row : row + 1], f"{where}, row {row + 1}"
            got = ", ".join(self.cells[at][row] for at in self.found.box)
            if not np.isfinite(box).all():
                raise malformed(place, f"have {_MEANINGS[self.found.format]}, finite numbers", got)
            require_inside(to_xywh(box, self.found.format), sides, place, f"have a box {units}", [got])
        values: ImageValues = {"boxes": self.boxes[objects]}
        for name, column in self.others.items():
            if not described[name].per_object:
                values[name] = value_at(column, first)
            elif isinstance(column, np.ndarray):
                values[name] = column[objects]
            else:
                values[name] = [value_at(column, row) for row in objects.tolist()]
        values["rows"] = [json.dumps([row, *(cells[row] for cells in self.cells)]) for row in rows.tolist()]
        return SourceRecord(self.key(index), image, values)

    def fingerprint(self) -> str:
        return digest_of(super().fingerprint(), self.cells)


def list_objects(table: Table, image: TableColumn, found: BoxColumns) -> ObjectSource:
    """List the images of a table whose rows are objects, in order of first appearance."""
    path, columns = table.path, table.columns
    images, image_of = _numbered(image.file_names())
    order = np.argsort(image_of, kind="stable")
    starts = np.searchsorted(image_of[order], np.arange(len(images) + 1))
    boxes, has_box = _boxes_of([columns[at].cells for at in found.box])
    if not has_box.any():
        raise malformed(path, "have a box in one row or more", "none", "check its columns")
    files = list_files(image.folder, images)
    names = ", ".join(repr(columns[at].name) for at in found.box)
    is_right = has_box & np.isfinite(boxes).all(axis=1)
    field = Field.boxes(found.format, relative=0 < boxes[is_right].max(initial=0.0) <= 1)

    def sides_of(index: int) -> Sides | None:
        with contextlib.suppress(SourceError):  # packing reports it
            return upright_sides(files.read(index))
        return None

    if found.format == "xywh":
        step = "name them xmin,ymin,xmax,ymax, or cx,cy,w,h for the center; a kind (--column) keeps numbers"
        grouped = (order[start:end] for start, end in itertools.pairwise(starts.tolist()))
        by_image = [boxes[rows[is_right[rows]]] for rows in grouped]
        require_pixels(path, f"have x, y, width, height in pixels in {names}", step, by_image, sides_of)
    used = {columns.index(image), *found.box, found.label}
    further = [column for at, column in enumerate(columns) if at not in used]
    has_label = found.label >= 0
    labels = _labels(table, columns[found.label], has_box) if has_label else _unlabelled(table, further)
    taken = {"image", "boxes", "labels", "rows"}
    others = [_other(column, order, starts, taken) for column in further]
    units = "as fractions of the image" if field.relative else "in pixels"
    rows = Field("rows", "texts", internal=True)  # as they are, for `unpack`
    return ObjectSource(
        kind="table",
        name=path,
        classes=labels.classes,
        fields=(field, Field.labels(), *(each.field for each in others), rows),
        columns={
            "image": f"{image.naming or 'paths of the images'}, {image.origin}, with a row for each object",
            "boxes": f"{_MEANINGS[found.format]} {units}, of the columns {names}",
            "labels": labels.meaning,
            **{each.field.name: each.meaning for each in others},
        },
        details={
            "table": os.path.basename(path),
            "header": table.header,
            "objects": {"image": columns.index(image), "box": found.box, "size": found.size},
        },
        files=files,
        found=found,
        cells=[column.cells for column in columns],
        order=order,
        starts=starts,
        has_box=has_box,
        boxes=boxes,
        others={"labels": labels.values} | {each.field.name: each.values for each in others},
    )


def _numbered(cells: Iterable[str]) -> tuple[dict[str, int], npt.NDArray[np.int64]]:
    """Return the different cells with their numbers, in order of first appearance, and the number of each."""
    numbers: dict[str, int] = {}
    return numbers, np.array([numbers.setdefault(cell, len(numbers)) for cell in cells], np.int64)


def _boxes_of(columns: Sequence[NameTable]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the boxes of all rows, NaN where cells are no numbers, and True for each row that has one."""
    if len(columns) > 1:
        numbers = [floats_of(cells) for cells in columns]
        filled = [[bool(cell.strip()) for cell in cells] for cells in columns]
        return np.stack(numbers, axis=1), np.any(filled, axis=0)
    texts = [cell.strip() for cell in columns[0]]
    boxes = (numbers_of(re.split(r"[\s,;]+", text.strip("[]() "))) or () for text in texts)
    whole = [box if len(box) == 4 else [np.nan] * 4 for box in boxes]
    return np.array(whole, np.float64).reshape(-1, 4), np.array([*map(bool, texts)])


def _labels(table: Table, column: TableColumn, has_box: npt.NDArray[np.bool_]) -> LabelField:
    """Return the label of each row."""
    column.kind = table.given.get(LABEL, column.kind)
    if column.has_empty:  # a row without a box needs no class
        some_class = column.cells[int(np.argmax(has_box))]
        pairs = zip(column.cells, has_box.tolist(), strict=True)
        classes = NameTable(cell if cell or has else some_class for cell, has in pairs)
        column = replace(column, cells=classes)
    found = column.to_labels()
    if found is None or found.values.min() < 0:
        must, step = f"have classes in the column {column.name!r}", "name the classes, or number them from 0"
        raise malformed(table.path, must, "other numbers", step)
    return found


def _unlabelled(table: Table, further: Iterable[TableColumn]) -> LabelField:
    """Return labels of 0; raise SourceError if a column may hold the classes."""
    for column in further:
        if column.kind is None and numbers_in(column.cells) is None:
            options = column.options(label="they are the classes", text="all objects are of one class")
            must = f"have a column headed {', '.join(_CLASSES[:4])} or similar for the classes"
            raise malformed(table.path, must, f"the texts of {column.name!r}", f"pack with {options}")
    labels = np.zeros(len(table.columns[0].cells), np.int64)
    return LabelField(Field.labels(), labels, "0 for all: no column has a name for classes", ("object",))


def _other(
    column: TableColumn, order: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], taken: set[str]
) -> TableField:
    """Return a further column as a field, of the image if the rows of each agree, else of its objects."""
    found = column.to_field(free_field_name(column.name, taken))
    if found.field.kind == "image":
        got = f"the column {column.name!r}"
        raise malformed(column.table, "hold no further images beside boxes", got, "leave it out")
    field = found.field
    numbers = _numbered(column.cells)[1][order]
    if not np.array_equal(numbers, np.repeat(numbers[starts[:-1]], np.diff(starts))):
        field = replace(field, kind="texts" if field.kind == "text" else "ragged", per_object=True)
    return replace(found, field=field)
