"""Lists the images of a CSV or TSV table: a column of paths, one of labels, and any others.

The first row is a header when its first cell is not an existing file and either one of its cells is
`path`, `file`, `filename`, `file_name` or `image`, or its first cell has no suffix such as `.jpg`.

Paths count from the table's own folder. They stand in the column of one of those names, else in the
first. Labels stand in the column `label`, else in the first that is left; what they are decides:

    all integers        labels as they are; the classes are "0", "1", … up to the largest
    other numbers       no labels: the column is one of the further ones
    anything else       class names: the labels count into them, sorted

Every further column is a field of its header's name (`col3` without one): float64 where that holds
every cell's number, text otherwise. Rows count from 1, without the header and without blank lines.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TextIO

import numpy as np
import numpy.typing as npt

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources.files import NO_LABEL, FileList, FileLister, FileSource, Values
from fastload.sources.names import NameTable, NameTableBuilder

TABLE_SUFFIXES = (".csv", ".tsv")
PATH_HEADERS = ("path", "file", "filename", "file_name", "image")
MOST_NUMBERED_CLASSES = 1_000_000
"""Labels beyond this are identifiers: a name for every number below them would take gigabytes."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, read as UTF-8 that they are not


def list_table(path: str) -> FileSource:
    """Lists the images that a table names, one record a row; a row that repeats stays repeated.

    An image that does not exist is found when its record is read, not here.

    Args:
        path: A `.tsv` file, or a `.csv` file with commas, semicolons or tabs; UTF-8.

    Raises:
        SourceError: The table is empty or malformed, or a row, which is named, lacks path or label.
    """
    folder = os.path.dirname(os.path.abspath(path))
    rows = _rows(path)
    first = next(rows, [])
    is_headed = not first or _is_header(first, folder)
    header = first if is_headed else []
    path_column, label_column = _roles(header, len(first))
    lister = FileLister(folder)
    builders = {number: NameTableBuilder() for number in range(len(first)) if number != path_column}
    for row, cells in enumerate(rows if is_headed else itertools.chain([first], rows), 1):
        if not cells[path_column]:
            raise SourceError(f"{path}, row {row}: must name an image, got an empty cell: fill it in")
        lister.add(cells[path_column])
        for number, builder in builders.items():
            builder.append(cells[number])
    if not len(lister):
        raise SourceError(f"{path}: must have a row for each image, got none: check the file")
    columns = {number: builder.build() for number, builder in builders.items()}
    return _source(path, lister.finish(), header, columns, label_column)


def _source(
    path: str,
    files: FileList,
    header: list[str],
    columns: Mapping[int, NameTable],
    label_column: int | None,
) -> FileSource:
    """The source of these files, with the columns turned into labels and fields."""
    cells = None if label_column is None else columns[label_column]
    labels, classes = _labels(path, cells, len(files))
    found: list[tuple[Field, Values]] = []
    if labels is not None:
        found.append((Field.label(), labels))
        columns = {number: cells for number, cells in columns.items() if number != label_column}
    names = _field_names(header, columns, taken={"image", *(field.name for field, _ in found)})
    found += [_column(path, names[number], cells) for number, cells in columns.items()]
    return FileSource(
        "table",
        path,
        classes,
        tuple(field for field, _ in found),
        files,
        {field.name: values for field, values in found},
        tuple(_renamed(path, header, names)),
        table=path,
    )


def _rows(path: str) -> Iterator[list[str]]:
    """The rows of a table that are not blank, all of one width."""
    with _opened(path) as file:
        start = file.readline()
        if start.startswith(_UTF_16):
            raise SourceError(f"{path}: must be UTF-8, got UTF-16: save it as 'CSV UTF-8'")
        file.seek(0)
        delimiter = _delimiter(path, start)
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
        width = 0
        try:
            for cells in filter(None, reader):
                width = width or len(cells)
                if len(cells) != width:
                    raise SourceError(
                        f"{path}, line {reader.line_num}: must have {width} cells as the first row "
                        f"has, got {len(cells)}: quote cells that hold a delimiter"
                    )
                yield cells
        except csv.Error as error:
            raise SourceError(
                f"{path}, line {reader.line_num}: must be a row of a table, got: {error}: check its quotes"
            ) from error


def _opened(path: str) -> TextIO:
    try:
        return open(path, newline="", encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise SourceError(
            f"{path}: must be a table that can be read, got: {error.strerror}: make it readable"
        ) from error


def _delimiter(path: str, line: str) -> str:
    if path.lower().endswith(".tsv"):
        return "\t"
    return max((",", ";", "\t"), key=line.count)


def _is_header(row: list[str], folder: str) -> bool:
    """Whether a first row names columns; the module's docstring says the rule."""
    if os.path.isfile(os.path.join(folder, row[0])):
        return False
    return not os.path.splitext(row[0])[1] or any(cell.lower() in PATH_HEADERS for cell in row)


def _roles(header: list[str], width: int) -> tuple[int, int | None]:
    """Which columns hold the paths and the labels; None where the paths stand alone."""
    names = [name.lower() for name in header]
    path_column = next((number for number, name in enumerate(names) if name in PATH_HEADERS), 0)
    others = [number for number in range(width) if number != path_column]
    named = [number for number in others if names and names[number] == "label"]
    return path_column, next(iter(named + others), None)


def _labels(
    path: str, cells: NameTable | None, count: int
) -> tuple[npt.NDArray[np.int64] | None, tuple[str, ...]]:
    """The label of each row, and the classes; no labels where the column holds other numbers."""
    if cells is None:
        return np.full(count, NO_LABEL, dtype=np.int64), ()
    integers = _integers(cells)
    if integers is not None:
        class_count = int(integers.max()) + 1
        is_counted = class_count <= MOST_NUMBERED_CLASSES
        return integers, tuple(map(str, range(class_count))) if is_counted else ()
    if _numbers(cells) is not None:
        return None, ()
    classes = sorted(set(cells))
    if "" in classes:
        row = cells.index("") + 1
        raise SourceError(f"{path}, row {row}: must have a label, got an empty cell: fill it in")
    position = {name: label for label, name in enumerate(classes)}
    return np.fromiter((position[cell] for cell in cells), np.int64, count), tuple(classes)


def _column(path: str, name: str, cells: NameTable) -> tuple[Field, Values]:
    """A further column as a field: numbers where all cells are, else text."""
    numbers = _numbers(cells)
    if numbers is not None:
        return Field(name, "scalar", "float64"), numbers
    for row, cell in enumerate(cells, 1):
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            raise SourceError(
                f"{path}, row {row}: {name} must be UTF-8, got {os.fsencode(cell)!r}: save the table as UTF-8"
            ) from error
    return Field(name, "text"), cells


def _integers(cells: NameTable) -> npt.NDArray[np.int64] | None:
    """The cells as integers, or None where one of them is none that int64 holds."""
    if not all(map(_INTEGER.fullmatch, cells)):
        return None
    try:
        return np.fromiter(map(int, cells), np.int64, len(cells))
    except (OverflowError, ValueError):  # ValueError: thousands of digits
        return None


def _numbers(cells: NameTable) -> npt.NDArray[np.float64] | None:
    """The cells as numbers, or None where one of them is none that float64 holds."""
    try:
        return np.fromiter(map(_number, cells), np.float64, len(cells))
    except (OverflowError, ValueError):
        return None


def _number(cell: str) -> float:
    number = float(cell)
    if "_" in cell:  # Python reads 1_0 as 10
        raise ValueError(cell)
    if _INTEGER.fullmatch(cell) and int(number) != int(cell):  # an identifier of 17 digits or more
        raise ValueError(cell)
    return number


def _field_names(header: list[str], columns: Collection[int], taken: set[str]) -> dict[int, str]:
    """A field's name for each column: its header, made an identifier that is still free."""
    names: dict[int, str] = {}
    for number in columns:
        name = re.sub(r"[^A-Za-z0-9]+", "_", header[number]).strip("_") if header else ""
        name = f"_{name}" if name[:1].isdigit() else name or f"col{number + 1}"
        while name in taken or not _is_field_name(name):
            name += "_"
        taken.add(name)
        names[number] = name
    return names


def _is_field_name(name: str) -> bool:
    try:
        Field(name, "text")
    except OptionError:
        return False
    return True


def _renamed(path: str, header: list[str], names: Mapping[int, str]) -> Iterator[str]:
    for number, name in names.items():
        if header and header[number] != name:
            yield f"{path}: column {header[number]!r} is stored as the field {name!r}"
