"""Kinds of a table's columns: labels, or fields of numbers, text or images."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources.files import FileList, NameTable, Values, list_files
from fastload.sources.listing import is_image
from fastload.sources.malformed import is_text, malformed
from fastload.sources.protocol import evenly_spaced
from fastload.sources.table.numbers import (
    CONVERSIONS,
    Numbers,
    all_filled,
    floats_in,
    integers_in,
    look_like_decimals,
    numbers_in,
)
from fastload.system.units import format_count

ColumnKind = Literal["text", "int", "float", "path", "label"]
"""The kinds that a user can give for a column."""

LABEL: Literal["label"] = "label"
"""The kind of the column that labels are taken from, and the header that makes a column of that kind."""

LABEL_HEADERS = (
    *("labels", "class", "category", "target", "y", "labelname", "classname", "categoryname"),
    *("labelid", "classid", "categoryid"),
)
"""Headers, without case and punctuation, of a column of labels, if it is the only one of them."""

TEXT_HEADERS = (
    *("text", "caption", "captions", "description", "comment"),
    *("prompt", "sentence", "transcription"),
    *("encodedpixels", "rle", "rlemask", "predictionstring"),
    *("split", "subset", "partition", "fold"),
)
"""Such headers of a column of texts, or of parts of a dataset, which are no classes."""

# Labels beyond this are identifiers: a name for every number below them would take gigabytes.
_MOST_NUMBERED_CLASSES = 1_000_000

# More classes than this with two images or fewer in each, for which the user must say that they are classes.
_MOST_UNSAID_CLASSES = 100

_MOST_CHARACTERS = 50  # of a header in a field's name, which may have 64

# At most this many cells are checked for files that are not named like images: each check takes 2 µs (stat).
_SAMPLED_CELLS = 64

# The options that settle an ambiguous column of numbers, and the effect of each.
_NUMBER_OPTIONS = {"float": "empty is NaN", "text": "as it is"}


@dataclass(frozen=True, slots=True)
class TableField:
    """A field made from a column: its values, and the decision about the column."""

    field: Field
    values: Values
    meaning: str


@dataclass(frozen=True, slots=True)
class LabelField(TableField):
    """The field of the labels, with their classes."""

    values: npt.NDArray[np.int64]
    classes: tuple[str, ...]


@dataclass(slots=True, eq=False)
class TableColumn:
    """A column of a table, named by its header, or `col3` without one, with the kind that the user gave.

    `files` holds the paths of the files that the cells name, relative to the table's folder; None if they are
    the cells. `naming` then says how the cells name them.
    """

    table: str
    name: str
    kind: ColumnKind | None = None
    cells: NameTable = field(default_factory=NameTable)
    files: NameTable | None = None
    naming: str = ""

    @property
    def plain_name(self) -> str:
        """The name without case and punctuation."""
        return re.sub(r"[^a-z0-9]", "", self.name.lower())

    @property
    def is_of_texts(self) -> bool:
        """True if no classes are expected: by the header, or as all cells are JSON."""
        return self.plain_name in TEXT_HEADERS or all(cell[:1] in ("{", "[") for cell in self.cells)

    @property
    def origin(self) -> str:
        """The words that name the column in a decision."""
        return f"of the column {self.name!r}"

    @property
    def folder(self) -> str:
        """The folder that paths in the table are relative to."""
        return os.path.dirname(os.path.abspath(self.table))

    @property
    def filled(self) -> npt.NDArray[np.int64]:
        """The indices of the cells that are not empty."""
        return np.flatnonzero(np.diff(self.cells.offsets))

    @property
    def has_empty(self) -> bool:
        """True if a cell is empty."""
        return len(self.filled) < len(self.cells)

    def names_file(self, cell: str) -> bool:
        """Return True if a cell is the path of an existing file."""
        return os.path.isfile(os.path.join(self.folder, cell))

    def error(self, row: int, must: str, got: str, next_step: str) -> SourceError:
        """Return an error about a row; rows are counted from 1."""
        return malformed(f"{self.table}, row {row}, {self.name}", must, got, next_step)

    def error_of(self, cell: str, must: str, next_step: str) -> SourceError:
        """Return the error about the first row with this cell."""
        return self.error(
            self.cells.index(cell) + 1, must, repr(cell) if cell else "an empty cell", next_step
        )

    def options(self, **effects: str) -> str:
        """Return the options that give the column a kind, with the effect of each."""
        shown = [f"--column {shlex.quote(f'{self.name}={kind}')} ({text})" for kind, text in effects.items()]
        return f"{' or '.join(shown)}; from Python columns={{{self.name!r}: {next(iter(effects))!r}}}"

    def to_labels(self, most_single: int = _MOST_UNSAID_CLASSES) -> LabelField | None:
        """Return the label of each row and the classes; None if the column holds floats.

        SourceError is raised for more than `most_single` names that hardly repeat, without a kind.
        """
        if self.kind == "float":
            return None
        numbers = self._to_numbers()
        is_float = numbers is not None and numbers.dtype != np.int64
        if is_float and self.kind == LABEL:
            step = f"pack with {self.options(float='a field of numbers', text='a field of texts')}"
            must = "be an integer or a name, as the column holds labels"
            raise self.error_of(self.cells[0], must, step)
        if self.has_empty:
            effects = {"float": "empty is NaN"} if is_float else {"text": "as it is"}
            has_choice = is_float or (self.kind is None and self.plain_name != LABEL)
            step = f", or pack with {self.options(**effects)}" if has_choice else ""
            raise self.error_of("", "have a value", f"fill it in{step}")
        if is_float:
            return None
        if numbers is not None:
            labels, classes = numbers.astype(np.int64), classes_of(numbers)
            return LabelField(Field.label(), labels, f"integers, {self.origin}", classes)
        if self.kind is None:
            _refuse_images(self)
        counts = Counter(self.cells)
        if self.kind in (None, LABEL) and look_like_decimals(counts):
            cell = next(cell for cell in counts if cell and floats_in([cell]) is None)
            named = replace(self, name=LABEL)
            options = named.options(float="numbers", text="names of classes")
            must = "hold numbers that can be written back unchanged, or names of classes"
            raise named.error_of(cell, must, f"pack with {options}")
        labels, classes = _named(self.cells)
        if self.kind is None and len(classes) > max(most_single, len(labels) // 2):
            options = self.options(label="they are the classes", text="they are texts")
            must, got = "hold names of classes", f"{len(classes):,} different texts in {len(labels):,} rows"
            raise malformed(f"{self.table}, {self.name}", must, got, f"pack with {options}")
        meaning = f"names of {format_count(len(classes), 'class', 'classes')}, {self.origin}"
        return LabelField(Field.label(), labels, meaning, classes)

    def file_names(self) -> NameTable:
        """Return the names of the files that the cells name, "" for an empty cell."""
        return self.cells if self.files is None else self.files

    def to_files(self) -> FileList:
        """Return the files that the cells name."""
        return list_files(self.folder, self.file_names())

    def to_field(self, name: str) -> TableField:
        """Return the column as a field of this name."""
        if self.kind == "path":
            naming = f", {self.naming}" if self.naming else ""
            meaning = f"images, stored as the files are{naming}, {self.origin}{self._empty('no image')}"
            return TableField(Field(name, "image", encoding="keep"), self.to_files(), meaning)
        numbers = self._to_numbers()
        if numbers is not None:
            meaning = f"{numbers.dtype.name}, {self.origin}{self._empty('NaN')}"
            return TableField(Field(name, "scalar", numbers.dtype.name), numbers, meaning)
        if self.kind is None:
            if self.has_empty and any(self.cells) and integers_in([*filter(None, self.cells)]) is not None:
                step = f"fill it in, or pack with {self.options(**_NUMBER_OPTIONS)}"
                raise self.error_of("", "be an integer, as in other rows", step)
            _refuse_images(self)
        cells = () if self.cells.data.isascii() else self.cells
        if row := next((row for row, cell in enumerate(cells, 1) if not is_text(cell)), 0):
            cell = os.fsencode(self.cells[row - 1])
            raise self.error(row, "be UTF-8", repr(cell), "save the table as UTF-8")
        return TableField(Field(name, "text"), self.cells, f"text, {self.origin}")

    def _empty(self, meaning: str) -> str:
        """Return the words on the empty cells; "" without any."""
        if not self.has_empty:
            return ""
        are = format_count(len(self.cells) - len(self.filled), "empty cell is", "empty cells are")
        return f", {are} {meaning} (the first in row {self.cells.index('') + 1})"

    def _to_numbers(self) -> Numbers | None:
        """Return the numbers of a column, None for text; raise SourceError for a cell of another kind."""
        if self.kind in (None, LABEL):
            return numbers_in(self.cells)
        if self.kind not in CONVERSIONS:
            return None
        dtype, convert, must = CONVERSIONS[self.kind]
        numbers: Numbers = np.empty(len(self.cells), dtype)
        for row, cell in enumerate(self.cells, 1):
            try:
                numbers[row - 1] = convert(cell)
            except ValueError:
                others = {other: effect for other, effect in _NUMBER_OPTIONS.items() if other != self.kind}
                step = f"correct it, or pack with {self.options(**others)}"
                raise self.error(row, must, repr(cell), step) from None
        return numbers


def labels_of(cells: Sequence[str]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return labels and classes: integers as labels, other cells as class names, numbered in sorted order."""
    numbers = numbers_in(cells)
    if numbers is not None and numbers.dtype == np.int64 and len(numbers):
        return numbers.astype(np.int64), classes_of(numbers)
    return _named(cells)


def classes_of(labels: Numbers) -> tuple[str, ...]:
    """Return the classes of labels that are integers: "0", "1", … up to the largest."""
    count = int(labels.max(initial=-1)) + 1
    return tuple(map(str, range(count))) if count <= _MOST_NUMBERED_CLASSES else ()


def _named(cells: Sequence[str]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    classes = tuple(sorted({*cells}))
    position = {name: label for label, name in enumerate(classes)}
    return np.fromiter(map(position.__getitem__, cells), np.int64, len(cells)), classes


def are_class_names(names: Sequence[str]) -> bool:
    """Return True if `to_labels` would take these labels for class names, regardless of which files exist."""
    are_files = all_filled(names, is_image)
    return numbers_in(names) is None and not look_like_decimals(Counter(names)) and not are_files


def _refuse_images(column: TableColumn) -> None:
    """Raise SourceError if a cell names a file, or if all cells are named like images, existing or not."""
    cells = [*column.cells]
    named = [row for row, cell in enumerate(cells, 1) if is_image(cell) and "://" not in cell]
    files = [row for row in named if column.names_file(cells[row - 1])]
    if not files:
        sampled = (index + 1 for index in evenly_spaced(len(cells), _SAMPLED_CELLS) if cells[index])
        files = [row for row in sampled if column.names_file(cells[row - 1])]
    if named and not files and len(named) == sum(map(bool, cells)):
        files = named
    if files:
        got = f"{cells[files[0] - 1]!r}, which names a file"
        options = column.options(path="stores the images as a field", text="stores their paths")
        must = "hold labels, numbers or text"
        raise column.error(files[0], must, got, f"give its kind: pack with {options}")


def free_field_name(header: str, taken: set[str]) -> str:
    """Return an identifier made from a header and not in `taken`, and add it to `taken`."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", header).strip("_")[:_MOST_CHARACTERS] or "column"
    name = f"_{name}" if name[0].isdigit() else name
    others = (f"{name}_{number}" for number in itertools.count(2))
    for free in itertools.chain([name, f"{name}_"], others):
        with contextlib.suppress(OptionError):  # no field may have the name
            Field(free, "text")
            if free not in taken:
                break
    taken.add(free)
    return free
