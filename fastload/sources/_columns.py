"""Decisions about the columns of a table: labels, or fields of numbers, text or images."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastload.errors import SourceError
from fastload.images.header import read_header
from fastload.shards.schema import Field
from fastload.sources._cells import (
    Numbers,
    all_filled,
    are_integers_but_for_empty,
    as_float,
    as_integer,
    look_like_decimals,
    numbers_in,
    reason_for_text,
)
from fastload.sources._names import NameTable
from fastload.sources._walking import IMAGE_SUFFIXES
from fastload.sources.files import FileList, Values
from fastload.sources.protocol import evenly_spaced

ColumnKind = Literal["text", "int", "float", "path"]
"""The kinds that a user can give for a column."""

LABEL = "label"
"""The header of the column that labels are taken from."""

# Labels beyond this are identifiers: a name for every number below them would take gigabytes.
MOST_NUMBERED_CLASSES = 1_000_000

# At most so many cells are checked for files that are not named like images: each check takes a stat of 2 us.
_SAMPLED_CELLS = 64

# Conversions to the numeric kinds: the dtype, the function, the requirement, and the kinds to try instead.
_CONVERSIONS: dict[str, tuple[type, Callable[[str], Any], str, dict[str, str]]] = {
    "int": (
        np.int64,
        as_integer,
        "be an integer that int64 holds",
        {"float": "empty is NaN", "text": "as it is"},
    ),
    "float": (
        np.float64,
        as_float,
        "be a number that float64 holds, or empty for NaN",
        {"text": "as it is"},
    ),
}


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, as messages name it: by its header, or `col3` without one."""

    table: str
    name: str

    @property
    def origin(self) -> str:
        """The words that name the column in a decision."""
        return f"of the column {self.name!r}"

    @property
    def folder(self) -> str:
        """The folder that paths in the table are relative to."""
        return os.path.dirname(os.path.abspath(self.table))

    def error(self, row: int, must: str, got: str, next_step: str) -> SourceError:
        """Return the error about a row, counted from 1."""
        return SourceError(f"{self.table}, row {row}: {self.name} must {must}, got {got}: {next_step}")

    def options(self, **effects: str) -> str:
        """Return the options that give the column a kind, with the effect of each."""
        shown = [f"--column {shlex.quote(f'{self.name}={kind}')} ({text})" for kind, text in effects.items()]
        return f"{' or '.join(shown)}; from Python columns={{{self.name!r}: {next(iter(effects))!r}}}"


class TableFields:
    """The result of a table's columns: fields, their values, class names, and the decisions (`meanings`)."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.values: dict[str, Values] = {}
        self.classes: tuple[str, ...] = ()
        self.meanings: dict[str, str] = {}

    def add(self, field: Field, values: Values, meaning: str) -> None:
        """Add a field."""
        self.fields.append(field)
        self.values[field.name] = values
        self.meanings[field.name] = meaning

    def add_labels(self, column: TableColumn, cells: NameTable, kind: ColumnKind | None) -> None:
        """Add the label of each row and the classes; nothing if the column holds floats."""
        integers: Numbers | None = None
        if kind == "int":
            integers = _convert(column, cells, kind)
        elif kind is None:
            integers = numbers_in(cells)
        if kind == "float" or (integers is not None and integers.dtype != np.int64):
            if kind is None and "" in cells:
                options = column.options(float="empty is NaN")
                raise _missing_label(column, cells, f"fill it in, or pack with {options}")
            return
        if "" in cells:
            raise _missing_label(column, cells, "fill it in")
        if integers is not None:
            class_count = int(integers.max()) + 1
            if class_count <= MOST_NUMBERED_CLASSES:
                self.classes = tuple(map(str, range(class_count)))
            self.add(Field.label(), integers, f"integers, {column.origin}")
            return
        if kind is None:
            _refuse_images(column, cells)
            _refuse_decimals(TableColumn(column.table, LABEL), cells)
        self.classes = tuple(sorted(set(cells)))
        position = {name: label for label, name in enumerate(self.classes)}
        labels = np.fromiter((position[cell] for cell in cells), np.int64, len(cells))
        count = "1 class" if len(self.classes) == 1 else f"{len(self.classes):,} classes"
        meaning = f"names of {count}, {column.origin}"
        self.add(Field.label(), labels, _with_reason(meaning, kind, cells))

    def add_column(
        self, column: TableColumn, name: str, cells: NameTable | FileList, kind: ColumnKind | None
    ) -> None:
        """Add a further column, of cells or of image files, as the field `name`."""
        if isinstance(cells, FileList):
            meaning = f"images, stored as the files are, {column.origin}"
            self.add(Field(name, "image", encoding="keep"), cells, meaning)
            return
        numbers: Numbers | None = None
        if kind in _CONVERSIONS:
            numbers = _convert(column, cells, kind)
        elif kind is None:
            numbers = numbers_in(cells)
            if numbers is None and are_integers_but_for_empty(cells):
                options = column.options(float="empty is NaN", text="as it is")
                step = f"fill it in, or pack with {options}"
                must = "be an integer, as in other rows"
                raise column.error(cells.index("") + 1, must, "an empty cell", step)
        if numbers is not None:
            meaning = f"{numbers.dtype.name}, {column.origin}{_empty_note(cells)}"
            self.add(Field(name, "scalar", numbers.dtype.name), numbers, meaning)
            return
        if kind is None:
            _refuse_images(column, cells)
        for row, cell in enumerate(cells, 1):
            try:
                cell.encode()
            except UnicodeEncodeError as error:
                got = repr(os.fsencode(cell))
                raise column.error(row, "be UTF-8", got, "save the table as UTF-8") from error
        self.add(Field(name, "text"), cells, _with_reason(f"text, {column.origin}", kind, cells))


def are_class_names(names: Sequence[str]) -> bool:
    """Return whether `add_labels` takes these labels for class names, whatever files exist."""
    are_files = all_filled(names, _has_image_suffix)
    return numbers_in(names) is None and not look_like_decimals(names) and not are_files


def _missing_label(column: TableColumn, cells: NameTable, next_step: str) -> SourceError:
    row = cells.index("") + 1
    return SourceError(f"{column.table}, row {row}: must have a label, got an empty cell: {next_step}")


def _empty_note(cells: NameTable) -> str:
    empty = sum(1 for cell in cells if not cell)
    if not empty:
        return ""
    count = "1 empty cell is" if empty == 1 else f"{empty:,} empty cells are"
    return f", {count} NaN (the first in row {cells.index('') + 1})"


def _with_reason(meaning: str, kind: ColumnKind | None, cells: NameTable) -> str:
    """Return a decision for text with its reason, if no kind was given and the cells resemble numbers."""
    reason = "" if kind is not None else reason_for_text(cells)
    return f"{meaning}, because {reason}" if reason else meaning


def _convert(column: TableColumn, cells: Sequence[str], kind: str) -> Numbers:
    """Return the cells as numbers of a kind that the user gave; raise SourceError for the first misfit."""
    dtype, convert, must, other_kinds = _CONVERSIONS[kind]
    numbers: Numbers = np.empty(len(cells), dtype)
    for row, cell in enumerate(cells, 1):
        try:
            numbers[row - 1] = convert(cell)
        except ValueError:
            step = f"correct it, or pack with {column.options(**other_kinds)}"
            raise column.error(row, must, repr(cell), step) from None
    return numbers


def _refuse_images(column: TableColumn, cells: Sequence[str]) -> None:
    """Raise SourceError if a cell names a file, or all are named like images, whether or not these exist."""
    row = _first_image(cells, column.folder)
    if row is None and all_filled(cells, _has_image_suffix):
        row = next((number for number, cell in enumerate(cells, 1) if cell), None)
    if row is not None:
        options = column.options(path="stores the images as a field", text="stores their paths")
        raise SourceError(
            f"{column.table}, row {row}: {column.name} names a file, {cells[row - 1]!r}, so the kind of the "
            f"column must be given: pack with {options}"
        )


def _refuse_decimals(column: TableColumn, cells: Sequence[str]) -> None:
    """Raise SourceError if most cells look like numbers with a fraction, which are no class names."""
    if look_like_decimals(cells):
        options = column.options(float="numbers", text="names of classes")
        raise SourceError(
            f"{column.table}: {column.name} must hold numbers that can be written back unchanged, or names "
            f"of classes, got neither: {reason_for_text(cells)}: pack with {options}"
        )


def _first_image(cells: Sequence[str], folder: str) -> int | None:
    """Return the first row whose cell names an image file, or a sampled row that names another file."""
    for row, cell in enumerate(cells, 1):
        if _has_image_suffix(cell) and os.path.isfile(os.path.join(folder, cell)):
            return row
    for index in evenly_spaced(len(cells), _SAMPLED_CELLS):
        path = os.path.join(folder, cells[index])
        if cells[index] and os.path.isfile(path) and (os.path.splitext(path)[1] or _is_image(path)):
            return index + 1
    return None


def _has_image_suffix(cell: str) -> bool:
    return cell.lower().endswith(IMAGE_SUFFIXES)


def _is_image(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            read_header(file.read())
    except (OSError, ValueError):  # ValueError: not an image
        return False
    return True
