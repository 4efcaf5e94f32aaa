"""Lists the images of a CSV or TSV table: a column of paths, one of labels, and any others.

The first row is a header when its first cell is not an existing file and either one of its cells is
`path`, `file`, `filename`, `file_name` or `image`, or its first cell has no suffix such as `.jpg`.

Paths count from the table's own folder. They stand in the column of one of those names; else in the first,
or, where that names no file, in the first that is said to hold paths. Labels stand in the column `label`,
else in the first that is left and of which nothing is said. What they are decides:

    all integers        labels as they are; the classes are "0", "1", … up to the largest
    floats              no labels: the column is one of the further ones
    anything else       class names: the labels count into them, sorted

Every further column is a field of its header's name (`col3` without one): int64, float64 or text, by the rule
of `cells.py`, or what it is said to be. Rows count from 1, without the header and without blank lines.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO, get_args

import numpy as np

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources.columns import LABEL, ColumnKind, Found, Place, add_column, add_labels, origin_of
from fastload.sources.files import NO_LABEL, FileList, FileLister, FileSource
from fastload.sources.names import NameTable, NameTableBuilder

TABLE_SUFFIXES = (".csv", ".tsv")
PATH_HEADERS = ("path", "file", "filename", "file_name", "image")

_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, read as UTF-8 that they are not


def list_table(path: str, columns: Mapping[str, ColumnKind] | None = None) -> FileSource:
    """Lists the images that a table names, one record a row; a row that repeats stays repeated.

    An image that does not exist is found when its record is read, not here.

    Args:
        path: A `.tsv` file, or a `.csv` file with commas, semicolons or tabs; UTF-8.
        columns: What columns are, by their headers (`col3` without one); `label` also names the one that
            labels are taken from. `text`, which of labels means names of classes; `int`; `float`, where
            empty cells are NaN; `path`, of images that are stored as a field.

    Raises:
        SourceError: The table is empty or malformed, a row, which is named, lacks path or label or is not
            what its column is said to be, or it cannot be told what a column is.
        OptionError: `columns` names a column that there is none of, or a kind that there is none of.
    """
    folder = os.path.dirname(os.path.abspath(path))
    rows = _rows(path)
    first = next(rows, [])
    is_headed = not first or _is_header(first, folder)
    header = first if is_headed else []
    first_row = next(rows, []) if is_headed else first
    layout = _layout(path, header, first_row, folder, columns or {})
    lister = FileLister(folder)
    builders: dict[int, NameTableBuilder | FileLister] = {
        number: FileLister(folder) if layout.said.get(number) == "path" else NameTableBuilder()
        for number in range(len(first))
        if number != layout.path_column
    }
    for row, cells in enumerate(itertools.chain([first_row] if first_row else [], rows), 1):
        if not cells[layout.path_column]:
            raise SourceError(f"{path}, row {row}: must name an image, got an empty cell: fill it in")
        lister.add(cells[layout.path_column])
        for number, builder in builders.items():
            if isinstance(builder, NameTableBuilder):
                builder.append(cells[number])
            elif cells[number]:
                builder.add(cells[number])
            else:
                place = Place(path, layout.names[number])
                raise place.refusal(row, "name an image", "an empty cell", "fill it in, or leave the row out")
    if not len(lister):
        raise SourceError(f"{path}: must have a row for each image, got none: check the file")
    return _source(path, lister.finish(), header, layout, {n: _built(each) for n, each in builders.items()})


def _built(builder: NameTableBuilder | FileLister) -> NameTable | FileList:
    return builder.build() if isinstance(builder, NameTableBuilder) else builder.finish()


def _source(
    path: str,
    files: FileList,
    header: list[str],
    layout: _Layout,
    columns: Mapping[int, NameTable | FileList],
) -> FileSource:
    """The source of these files, with the columns turned into labels and fields."""
    found = Found(meanings={"image": f"paths of the images, {origin_of(layout.names[layout.path_column])}"})
    label = layout.label_column
    if label is not None:
        cells = columns[label]
        assert isinstance(cells, NameTable)
        add_labels(found, Place(path, layout.names[label]), cells, layout.said.get(label), files.folder)
    elif not columns:
        found.add(Field.label(), np.full(len(files), NO_LABEL, np.int64), f"none: {NO_LABEL} for every image")
    if any(each.name == LABEL for each in found.fields):
        columns = {number: cells for number, cells in columns.items() if number != label}
    names = _field_names(header, list(columns), taken={"image", *found.values})
    for number, column in columns.items():
        add_column(found, Place(path, layout.names[number]), names[number], column, layout.said.get(number))
    return FileSource(
        "table",
        path,
        found.classes,
        tuple(found.fields),
        files,
        found.values,
        tuple(_renamed(path, header, names)),
        table=path,
        columns=found.meanings,
    )


def _rows(path: str) -> Iterator[list[str]]:
    """The rows of a table that are not blank, all of one width."""
    with _opened(path) as file:
        start = file.readline()
        if start.startswith(_UTF_16):
            raise SourceError(f"{path}: must be UTF-8, got UTF-16: save it as 'CSV UTF-8'")
        file.seek(0)
        delimiter = _delimiter(path, start)
        # Blanks belong to a cell, unless the first row shows that one is written after every delimiter.
        has_blanks = start.count(delimiter) == start.count(f"{delimiter} ") > 0
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=has_blanks, strict=True)
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
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer for ever
        raise SourceError(f"{path}: must be a file, got a pipe or a device: write the table to a file first")
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
    return not os.path.splitext(row[0])[1] or any(cell.strip().lower() in PATH_HEADERS for cell in row)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which column is what.

    Attributes:
        names: Of all columns, by their headers.
        path_column: The column of the images' paths.
        label_column: The column of the labels; None where there is none.
        said: What columns are said to be.
    """

    names: Sequence[str]
    path_column: int
    label_column: int | None
    said: Mapping[int, ColumnKind]


def _layout(
    path: str, header: list[str], row: list[str], folder: str, columns: Mapping[str, ColumnKind]
) -> _Layout:
    width = len(header) or len(row)
    names = [name.strip() for name in header] or [""] * width
    names = [name or f"col{number + 1}" for number, name in enumerate(names)]
    for name, kind in columns.items():
        if kind not in get_args(ColumnKind):
            raise OptionError(
                f"a column must be one of {', '.join(get_args(ColumnKind))}, got {name}={kind}: choose one"
            )
        if name not in (*names, LABEL):
            got = ", ".join(names)
            raise OptionError(f"{path}: must have a column {name!r} to be {kind}, got {got}: check its name")
    said = {number: columns[name] for number, name in enumerate(names) if name in columns}
    headings = [name.lower() for name in names]
    path_column = next((number for number, name in enumerate(headings) if name in PATH_HEADERS), None)
    if path_column is None:
        are_paths = [number for number, kind in said.items() if kind == "path"]
        is_first = not row or os.path.isfile(os.path.join(folder, row[0])) or not are_paths
        path_column = 0 if is_first else are_paths[0]
    kind = said.pop(path_column, "path")
    if kind != "path" and names.count(names[path_column]) == 1:
        raise OptionError(f"{path}: the column {names[path_column]!r} names the images, and cannot be {kind}")
    others = [number for number in range(width) if number != path_column and said.get(number) != "path"]
    headed = [number for number in others if headings[number] == LABEL]
    label = next(iter(headed + [number for number in others if number not in said]), None)
    if label is not None and label not in said and LABEL in columns:
        said[label] = columns[LABEL]
        label = None if columns[LABEL] == "path" else label
    elif LABEL in columns and LABEL not in names:
        raise OptionError(f"{path}: must have a column left for the labels, got {', '.join(names)}")
    return _Layout(names, path_column, label, said)


def _field_names(header: list[str], columns: Sequence[int], taken: set[str]) -> dict[int, str]:
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
