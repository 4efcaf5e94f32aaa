"""What the columns of a table become: labels, or fields of numbers, text or images; and why."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.images.header import read_header
from fastload.shards.schema import Field
from fastload.sources.cells import (
    Numbers,
    all_filled,
    are_integers_but_for_empty,
    as_float,
    as_integer,
    look_like_decimals,
    numbers_in,
    reason_for_text,
)
from fastload.sources.files import FileList, Values
from fastload.sources.names import NameTable
from fastload.sources.protocol import evenly_spaced
from fastload.sources.walking import IMAGE_SUFFIXES

ColumnKind = Literal["text", "int", "float", "path"]
"""What a column can be said to be."""

LABEL = "label"
"""The header of the column that labels are taken from."""

MOST_NUMBERED_CLASSES = 1_000_000
"""Labels beyond this are identifiers: a name for every number below them would take gigabytes."""

# Among so many cells at most, a file of another kind is looked for: a stat of each would take 2 us.
_SAMPLED_CELLS = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column stands, for messages.

    Attributes:
        table: The table's path.
        name: The column's header, or `col3` where there is none.
    """

    table: str
    name: str

    def refusal(self, row: int, must: str, got: str, next_step: str) -> SourceError:
        """The error that names a row, counted from 1."""
        return SourceError(f"{self.table}, row {row}: {self.name} must {must}, got {got}: {next_step}")

    def options(self, **kinds: str) -> str:
        """The options that say what the column is, each with what it does.

        Args:
            kinds: What each kind does, by its name.
        """
        said = [f"--column {shlex.quote(f'{self.name}={kind}')} ({does})" for kind, does in kinds.items()]
        return f"{' or '.join(said)}; from Python columns={{{self.name!r}: {next(iter(kinds))!r}}}"


@dataclass(slots=True)
class Found:
    """What the columns of a table have turned out to be.

    Attributes:
        fields: The fields.
        values: Their values.
        classes: The names of the classes.
        meanings: What was decided for each field.
    """

    fields: list[Field] = field(default_factory=list)
    values: dict[str, Values] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    meanings: dict[str, str] = field(default_factory=dict)

    def add(self, field: Field, values: Values, meaning: str) -> None:
        """Adds a field."""
        self.fields.append(field)
        self.values[field.name] = values
        self.meanings[field.name] = meaning


def add_labels(found: Found, place: Place, cells: NameTable, kind: ColumnKind | None, folder: str) -> None:
    """Adds the label of each row, and the classes; nothing where the column holds floats.

    Args:
        found: What is added to.
        place: Where the column stands.
        cells: The column.
        kind: What it is said to be, if anything.
        folder: Where paths count from.

    Raises:
        SourceError: A row has no label, or not what the column is said to be; or it cannot be told what
            the column is.
    """
    integers: Numbers | None = _require_integers(place, cells) if kind == "int" else None
    if kind is None:
        integers = numbers_in(cells)
    if kind == "float" or (integers is not None and integers.dtype != np.int64):
        if kind is None and "" in cells:
            options = place.options(float="empty is NaN")
            raise _no_label(place, cells, f"fill it in, or pack with {options}")
        return
    if "" in cells:
        raise _no_label(place, cells, "fill it in")
    origin = origin_of(place.name)
    if integers is not None:
        class_count = int(integers.max()) + 1
        if class_count <= MOST_NUMBERED_CLASSES:
            found.classes = tuple(map(str, range(class_count)))
        found.add(Field.label(), integers, f"integers, {origin}")
        return
    if kind is None:
        _refuse_images(place, cells, folder)
        _refuse_decimals(Place(place.table, LABEL), cells)
    found.classes = tuple(sorted(set(cells)))
    position = {name: label for label, name in enumerate(found.classes)}
    labels = np.fromiter((position[cell] for cell in cells), np.int64, len(cells))
    count = "1 class" if len(found.classes) == 1 else f"{len(found.classes):,} classes"
    found.add(Field.label(), labels, _because(f"names of {count}, {origin}", kind, cells))


def _no_label(place: Place, cells: NameTable, next_step: str) -> SourceError:
    row = cells.index("") + 1
    return SourceError(f"{place.table}, row {row}: must have a label, got an empty cell: {next_step}")


def add_column(
    found: Found, place: Place, name: str, column: NameTable | FileList, kind: ColumnKind | None
) -> None:
    """Adds a further column as a field.

    Args:
        found: What is added to.
        place: Where the column stands.
        name: The field's name.
        column: Cells, or image files.
        kind: What it is said to be, if anything.

    Raises:
        SourceError: A row is not what the column is said to be, or it cannot be told what the column is.
    """
    origin = origin_of(place.name)
    if isinstance(column, FileList):
        found.add(Field(name, "image", encoding="keep"), column, f"images, stored as the files are, {origin}")
        return
    numbers: Numbers | None = None
    if kind in ("int", "float"):
        numbers = _require_integers(place, column) if kind == "int" else _require_floats(place, column)
    elif kind is None:
        numbers = numbers_in(column)
        if numbers is None and are_integers_but_for_empty(column):
            raise _refused_empty(place, column)
    if numbers is not None:
        empty = sum(1 for cell in column if not cell)
        note = ""
        if empty:
            count = "1 empty cell is" if empty == 1 else f"{empty:,} empty cells are"
            note = f", {count} NaN (the first in row {column.index('') + 1})"
        found.add(Field(name, "scalar", numbers.dtype.name), numbers, f"{numbers.dtype.name}, {origin}{note}")
        return
    if kind is None:
        _refuse_images(place, column, os.path.dirname(os.path.abspath(place.table)))
    for row, cell in enumerate(column, 1):
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            got = repr(os.fsencode(cell))
            raise place.refusal(row, "be UTF-8", got, "save the table as UTF-8") from error
    found.add(Field(name, "text"), column, _because(f"text, {origin}", kind, column))


def _because(meaning: str, kind: ColumnKind | None, cells: NameTable) -> str:
    """What a column of no numbers is; and why, where nobody has said it and most cells look like some."""
    reason = "" if kind is not None else reason_for_text(cells)
    return f"{meaning}, because {reason}" if reason else meaning


def origin_of(name: str) -> str:
    """The words that name a column in what was decided."""
    return f"of the column {name!r}"


def are_names_of_classes(names: Sequence[str]) -> bool:
    """Whether `add_labels` takes these labels for names of classes, wherever it finds them."""
    are_files = all_filled(names, _is_named_like_an_image)
    return numbers_in(names) is None and not look_like_decimals(names) and not are_files


def _refused_empty(place: Place, cells: Sequence[str]) -> SourceError:
    """The error for a column of integers with an empty cell."""
    row = cells.index("") + 1
    step = f"fill it in, or pack with {place.options(float='empty is NaN', text='as it is')}"
    return place.refusal(row, "be an integer, as in other rows", "an empty cell", step)


def _refuse_images(place: Place, cells: Sequence[str], folder: str) -> None:
    """Refuses to take paths of images for text, or for the names of classes.

    Args:
        place: Where the column stands.
        cells: The column.
        folder: Where paths count from.

    Raises:
        SourceError: A cell names a file, or all are named like images, wherever these lie; says what to do.
    """
    row = _first_image(cells, folder)
    if row is None and all_filled(cells, _is_named_like_an_image):
        row = next((number for number, cell in enumerate(cells, 1) if cell), None)
    if row is not None:
        options = place.options(path="stores the images as a field", text="stores their paths")
        raise SourceError(
            f"{place.table}, row {row}: {place.name} names a file, {cells[row - 1]!r}, and what the "
            f"column is must be said: pack with {options}"
        )


def _refuse_decimals(place: Place, cells: Sequence[str]) -> None:
    """Refuses to take numbers for names of classes.

    Raises:
        SourceError: Most cells look like numbers with a fraction.
    """
    if look_like_decimals(cells):
        options = place.options(float="numbers", text="names of classes")
        raise SourceError(
            f"{place.table}: {place.name} must hold numbers that say the same when written back, or names of "
            f"classes, got neither: {reason_for_text(cells)}: pack with {options}"
        )


def _first_image(cells: Sequence[str], folder: str) -> int | None:
    """The first row whose cell names an image file; of others, such as `mask.npy`, some are looked for."""
    for row, cell in enumerate(cells, 1):
        if _is_named_like_an_image(cell) and os.path.isfile(os.path.join(folder, cell)):
            return row
    for index in evenly_spaced(len(cells), _SAMPLED_CELLS):
        path = os.path.join(folder, cells[index])
        if cells[index] and os.path.isfile(path) and (os.path.splitext(path)[1] or _is_image(path)):
            return index + 1
    return None


def _is_named_like_an_image(cell: str) -> bool:
    return cell.lower().endswith(IMAGE_SUFFIXES)


def _is_image(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            read_header(file.read())
    except (OSError, ValueError):  # ValueError: no image
        return False
    return True


def _require_integers(place: Place, cells: Sequence[str]) -> npt.NDArray[np.int64]:
    """The integers that a column is said to hold.

    Raises:
        SourceError: A cell is none, or one that int64 does not hold.
    """
    integers = np.empty(len(cells), np.int64)
    for row, cell in enumerate(cells, 1):
        try:
            integers[row - 1] = as_integer(cell)
        except ValueError:
            options = place.options(float="empty is NaN", text="as it is")
            step = f"mend it, or pack with {options}"
            raise place.refusal(row, "be an integer that int64 holds", repr(cell), step) from None
    return integers


def _require_floats(place: Place, cells: Sequence[str]) -> npt.NDArray[np.float64]:
    """The floats that a column is said to hold; an empty cell is NaN.

    Raises:
        SourceError: A cell is no number, or one that float64 does not hold.
    """
    numbers = np.empty(len(cells), np.float64)
    for row, cell in enumerate(cells, 1):
        try:
            numbers[row - 1] = as_float(cell)
        except ValueError:
            step = f"mend it, or pack with {place.options(text='as it is')}"
            raise place.refusal(
                row, "be a number that float64 holds, or empty for NaN", repr(cell), step
            ) from None
    return numbers
