"""Rows of YOLO's label files: a class, then a box, a polygon, the corners of an oriented box, or keypoints.

    boxes      class cx cy w h
    polygons   class x1 y1 x2 y2 x3 y3 …
    corners    class x1 y1 x2 y2 x3 y3 x4 y4
    keypoints  class cx cy w h x1 y1 [v1] x2 y2 [v2] …

Coordinates are fractions of the image. The checks are those of Ultralytics 8.4, which leaves such images out
of training: numbers of columns, classes, and coordinates within 1 % of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastload.shards.schema import Field
from fastload.sources._annotated import AnnotationReader, Size, Values
from fastload.sources._malformed import malformed, numbers_of
from fastload.sources._yolo_yaml import MOST_CLASSES

Task = Literal["boxes", "polygons", "corners", "keypoints"]

_BOX_COLUMNS = 5
_CORNER_COLUMNS = 9
_LEAST_POLYGON_COLUMNS = 7
_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class YoloReader(AnnotationReader):
    """Reader of label files; `classes` is the number of classes, `shape` that of the keypoints."""

    task: Task
    classes: int
    shape: tuple[int, int] = (0, 0)

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of each image."""
        further = {
            "boxes": (),
            "polygons": (Field.polygons(relative=True),),
            "corners": (Field.corners(relative=True),),
            "keypoints": (Field.keypoints(self.shape, relative=True),) if self.task == "keypoints" else (),
        }
        return (Field.boxes("cxcywh", relative=True), Field.labels(), *further[self.task])

    def read(self, text: bytes, size: Size, where: str) -> tuple[Values, tuple[str, ...]]:
        rows: dict[bytes, list[float]] = {}
        first: dict[bool, int] = {}
        repeated: list[int] = []
        for number, cells in _numbered_rows(text, where):
            row = self._checked(cells, f"{where}, line {number}")
            identity = np.array(row, np.float32).tobytes()  # of Ultralytics' precision
            if identity in rows:
                repeated.append(number)
            rows.setdefault(identity, row)
            first.setdefault(len(row) == _BOX_COLUMNS, number)
            if len(first) > 1 and self.task == "polygons":
                wanted = f"hold boxes only or polygons only, as line {min(first.values())}"
                step = "make boxes polygons of four points"
                raise malformed(f"{where}, line {number}", wanted, "the other", step)
        kept = list(rows.values())
        lines = ", ".join(map(str, repeated[:5])) + (", …" if len(repeated) > 5 else "")
        notes = (f"{where}: repeated rows are left out, as by Ultralytics: line {lines}",) if repeated else ()
        return self._values(kept), notes

    def _values(self, rows: list[list[float]]) -> Values:
        values: Values = {
            "boxes": np.array([self._box(row) for row in rows], np.float64).reshape(-1, 4),
            "labels": np.array([row[0] for row in rows], np.int64),
        }
        if self.task == "polygons":
            values["polygons"] = [[_points(row)] if len(row) != _BOX_COLUMNS else [] for row in rows]
        elif self.task != "boxes":
            shape = (4, 2) if self.task == "corners" else self.shape
            begin = 1 if self.task == "corners" else _BOX_COLUMNS
            values[self.task] = np.array([row[begin:] for row in rows], np.float64).reshape(-1, *shape)
        return values

    def _box(self, row: list[float]) -> list[float]:
        is_outline = self.task in ("polygons", "corners") and len(row) != _BOX_COLUMNS
        return _enclosing(row[1::2], row[2::2]) if is_outline else row[1:5]

    def _checked(self, cells: list[str], where: str) -> list[float]:
        if not self._fits(len(cells)):
            raise malformed(where, f"have {self._columns()}", f"{len(cells)} columns")
        row = numbers_of(cells)
        if row is None:
            raise malformed(where, "hold finite numbers", repr(" ".join(cells)))
        if row[0] % 1 or not 0 <= row[0] < self.classes:
            wanted = f"begin with a class from 0 to {self.classes - 1}"
            raise malformed(
                where, wanted, cells[0], "correct it, or the names of the classes in data.yaml or classes.txt"
            )
        box = self._box(row)
        coordinates = [*box, *self._keypoints(row)]
        if max(coordinates) > 1 + _TOLERANCE or min(coordinates) < -_TOLERANCE:
            wrong = next(x for x in coordinates if not -_TOLERANCE <= x <= 1 + _TOLERANCE)
            raise malformed(where, "have coordinates from 0 to 1, as fractions of the image", f"{wrong:g}")
        if min(box[2:]) < 0:
            raise malformed(where, "have a width and a height of at least 0", f"{min(box[2:]):g}")
        return row

    def _keypoints(self, row: list[float]) -> list[float]:
        if self.task != "keypoints":
            return []
        points, numbers = self.shape
        marks = [row[_BOX_COLUMNS + numbers * at + 2] for at in range(points)] if numbers == 3 else []
        if min(marks, default=0.0) < -_TOLERANCE:
            return marks
        return [x for at in range(2) for x in row[_BOX_COLUMNS + at :: numbers]]

    def _fits(self, columns: int) -> bool:
        if self.task == "polygons":
            is_polygon = columns >= _LEAST_POLYGON_COLUMNS and columns % 2 == 1
            return columns == _BOX_COLUMNS or is_polygon
        points, numbers = self.shape
        wanted = {"boxes": _BOX_COLUMNS, "corners": _CORNER_COLUMNS}
        return columns == wanted.get(self.task, _BOX_COLUMNS + points * numbers)

    def _columns(self) -> str:
        points, numbers = self.shape
        return {
            "boxes": "5 columns, a class and a box",
            "corners": "9 columns, a class and four corners, as other rows have",
            "polygons": "5 columns, a class and a box, or an odd number from 7, a class and a polygon",
            "keypoints": f"{_BOX_COLUMNS + points * numbers} columns, a class, a box and {points} keypoints "
            f"of {numbers} numbers (kpt_shape)",
        }[self.task]


def guess_task(counts: set[int]) -> Task:
    """Return the task of label files whose rows have these numbers of columns.

    Nine columns in every row are the corners of oriented boxes; among other polygons they are one of four
    points.
    """
    if counts == {_CORNER_COLUMNS}:
        return "corners"
    return "polygons" if any(count >= _LEAST_POLYGON_COLUMNS for count in counts) else "boxes"


def scan_rows(text: bytes) -> tuple[set[int], int]:
    """Return the numbers of columns of a label file, and the largest class; malformed rows do not matter."""
    counts, largest = set(), -1
    for line in text.decode("utf-8-sig", "replace").splitlines():
        if cells := line.split():
            counts.add(len(cells))
            largest = max(largest, _class_of(cells[0]))
    return counts, largest


def _class_of(cell: str) -> int:
    """Return a class, which may be written as 7.0, or -1."""
    try:
        number = float(cell)
    except ValueError:
        return -1
    return int(number) if number.is_integer() and number < MOST_CLASSES else -1


def _numbered_rows(text: bytes, where: str) -> list[tuple[int, list[str]]]:
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        byte = f"the byte {text[error.start]:#04x}"
        raise malformed(f"{where}, line {line}", "be UTF-8", byte) from error
    rows = ((number, line.split()) for number, line in enumerate(lines, 1))
    return [(number, cells) for number, cells in rows if cells]


def _enclosing(xs: list[float], ys: list[float]) -> list[float]:
    """Return the box around points: center, width, height."""
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def _points(row: list[float]) -> NDArray[np.float64]:
    return np.array(row[1:], np.float64).reshape(-1, 2)
