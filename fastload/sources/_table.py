"""CSV and TSV tables as sources: a column of image paths, one of labels, and any others.

The first row is a header if its first cell is not an existing file and either one of its cells is `path`,
`file`, `filename`, `file_name` or `image`, or its first cell has no suffix such as `.jpg`.

Paths are relative to the table's folder. They are in the column of one of those names; else in the first, or,
if that does not name a file, in the first column given as `path`. Labels are in the column `label`, else in
the first remaining column without a given kind. Their cells decide what they become:

    all integers        labels as they are; the classes are "0", "1", … up to the largest
    floats              no labels: the column is one of the further ones
    anything else       class names: the labels number them in sorted order

Every further column is a field named by its header (`col3` without one): int64, float64 or text, by the rule
of `_cells.py`, or of the given kind. Rows count from 1, without the header and blank lines.
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
from fastload.sources._columns import LABEL, ColumnKind, TableColumn, TableFields
from fastload.sources._names import NameTable, NameTableBuilder
from fastload.sources.files import NO_LABEL, FileList, FileSource, list_files

TABLE_SUFFIXES = (".csv", ".tsv")
PATH_HEADERS = ("path", "file", "filename", "file_name", "image")

_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, decoded as UTF-8


def list_table(path: str, columns: Mapping[str, ColumnKind] | None = None) -> FileSource:
    """List the images of a table, one record per row; repeated rows stay repeated.

    `columns` gives the kinds of columns by their headers (`col3` without one); `label` also names the column
    that labels are taken from. `text` means class names for labels; `float` has NaN for empty cells; `path`
    is for images stored as a field. SourceError, naming the row, is raised for a malformed table, OptionError
    for invalid `columns`. An image that does not exist is found when its record is read.
    """
    folder = os.path.dirname(os.path.abspath(path))
    rows = _rows(path)
    first = next(rows, [])
    is_headed = not first or _is_header(first, folder)
    header = first if is_headed else []
    first_row = next(rows, []) if is_headed else first
    roles = _assign_roles(path, header, first_row, folder, columns or {})
    builders = [NameTableBuilder() for _ in first]
    row = 0
    for row, cells in enumerate(itertools.chain([first_row] if first_row else [], rows), 1):
        if not cells[roles.path_column]:
            raise SourceError(f"{path}, row {row}: must name an image, got an empty cell: fill it in")
        for number, cell in enumerate(cells):
            if not cell and roles.kinds.get(number) == "path":
                step = "fill it in, or leave the row out"
                raise roles.column(number).error(row, "name an image", "an empty cell", step)
            builders[number].append(cell)
    if not row:
        raise SourceError(f"{path}: must have a row for each image, got none: check the file")
    contents: dict[int, NameTable | FileList] = {}
    for number, builder in enumerate(builders):
        is_path = number == roles.path_column or roles.kinds.get(number) == "path"
        contents[number] = list_files(folder, builder.build()) if is_path else builder.build()
    files = contents.pop(roles.path_column)
    assert isinstance(files, FileList)
    return _source(path, files, header, roles, contents)


@dataclass(frozen=True, slots=True)
class _ColumnRoles:
    """Columns of a table: their names, which hold the paths and the labels (if any), and the given kinds."""

    table: str
    names: Sequence[str]
    path_column: int
    label_column: int | None
    kinds: Mapping[int, ColumnKind]

    def column(self, number: int) -> TableColumn:
        return TableColumn(self.table, self.names[number])


def _source(
    path: str,
    files: FileList,
    header: list[str],
    roles: _ColumnRoles,
    contents: dict[int, NameTable | FileList],
) -> FileSource:
    """Return the source of these files, with the columns turned into labels and fields."""
    table = TableFields()
    table.meanings["image"] = f"paths of the images, {roles.column(roles.path_column).origin}"
    label = roles.label_column
    if label is not None:
        cells = contents[label]
        assert isinstance(cells, NameTable)
        table.add_labels(roles.column(label), cells, roles.kinds.get(label))
        if table.fields:
            del contents[label]
    elif not contents:
        table.add(Field.label(), np.full(len(files), NO_LABEL, np.int64), f"none: {NO_LABEL} for every image")
    names = _field_names(header, list(contents), taken={"image", *table.values})
    for number, column in contents.items():
        table.add_column(roles.column(number), names[number], column, roles.kinds.get(number))
    return FileSource(
        kind="table",
        name=path,
        classes=table.classes,
        fields=tuple(table.fields),
        warnings=tuple(
            f"{path}: column {header[number]!r} is stored as the field {name!r}"
            for number, name in names.items()
            if header and header[number] != name
        ),
        files=files,
        values=table.values,
        table=path,
        columns=table.meanings,
    )


def _rows(path: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank; raise SourceError unless all have one width."""
    with _open(path) as file:
        start = file.readline()
        if start.startswith(_UTF_16):
            raise SourceError(f"{path}: must be UTF-8, got UTF-16: save it as 'CSV UTF-8'")
        file.seek(0)
        is_tsv = path.lower().endswith(".tsv")
        delimiter = "\t" if is_tsv else max((",", ";", "\t"), key=start.count)
        # Spaces belong to a cell, unless the first row has one after every delimiter.
        has_spaces = start.count(delimiter) == start.count(f"{delimiter} ") > 0
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=has_spaces, strict=True)
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


def _open(path: str) -> TextIO:
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer
        raise SourceError(f"{path}: must be a file, got a pipe or a device: write the table to a file first")
    try:
        return open(path, newline="", encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise SourceError(
            f"{path}: must be a table that can be read, got: {error.strerror}: make it readable"
        ) from error


def _is_header(row: list[str], folder: str) -> bool:
    if os.path.isfile(os.path.join(folder, row[0])):
        return False
    return not os.path.splitext(row[0])[1] or any(cell.strip().lower() in PATH_HEADERS for cell in row)


def _assign_roles(
    path: str, header: list[str], row: list[str], folder: str, columns: Mapping[str, ColumnKind]
) -> _ColumnRoles:
    """Choose the columns of paths and labels, from the headers, the first row and the given kinds."""
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
    kinds = {number: columns[name] for number, name in enumerate(names) if name in columns}
    headings = [name.lower() for name in names]
    path_column = next((number for number, name in enumerate(headings) if name in PATH_HEADERS), None)
    if path_column is None:
        given_paths = [number for number, kind in kinds.items() if kind == "path"]
        is_first = not row or os.path.isfile(os.path.join(folder, row[0])) or not given_paths
        path_column = 0 if is_first else given_paths[0]
    kind = kinds.pop(path_column, "path")
    if kind != "path" and names.count(names[path_column]) == 1:
        raise OptionError(f"{path}: the column {names[path_column]!r} names the images, and cannot be {kind}")
    others = [number for number in range(width) if number != path_column and kinds.get(number) != "path"]
    headed = [number for number in others if headings[number] == LABEL]
    label = next(iter(headed + [number for number in others if number not in kinds]), None)
    if label is not None and label not in kinds and LABEL in columns:
        kinds[label] = columns[LABEL]
        label = None if columns[LABEL] == "path" else label
    elif LABEL in columns and LABEL not in names:
        raise OptionError(f"{path}: must have a column left for the labels, got {', '.join(names)}")
    return _ColumnRoles(path, names, path_column, label, kinds)


def _field_names(header: list[str], columns: Sequence[int], taken: set[str]) -> dict[int, str]:
    """Return a field name for each column: its header, made an identifier that is still free."""
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
