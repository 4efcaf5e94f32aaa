"""CSV and TSV tables as sources: a column of image paths, one of labels, and any others.

The first row is a header if its first cell is not an existing file and either one of its cells is `path`,
`file`, `filename`, `file_name` or `image`, or its first cell has no suffix such as `.jpg`.

Paths are relative to the table's folder. They are in the column of one of those names; else in the first, or,
if that does not name a file, in the first column given as `path`. Labels are in the column `label`, else in
the first remaining column without a given kind. Their cells decide what they become:

    all integers        labels as they are; the classes are "0", "1", … up to the largest
    floats              no labels: the column becomes a field, like further columns
    anything else       class names: the labels number them in sorted order

Every further column is a field named by its header (`col3` without one): images if its first cell is the path
of one (a mask, a depth map), else int64, float64 or text, by the rule of `_columns.py`; or of the given kind.
Rows count from 1, without the header and blank lines.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TextIO, get_args

import numpy as np

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources._columns import LABEL, ColumnKind, TableColumn, TableField, free_field_name
from fastload.sources._malformed import malformed
from fastload.sources._object_table import OBJECT_HEADER, BoxColumns, find_boxes, list_objects
from fastload.sources.files import NO_LABEL, FileSource, list_files
from fastload.sources.protocol import Source

TABLE_SUFFIXES = (".csv", ".tsv")
PATH_HEADERS = ("path", "file", "filename", "file_name", "image")

_BOX_NUMBERS = 3  # in a table without a header, the first of four is taken for the label

_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, decoded as UTF-8


def list_table(path: str, columns: Mapping[str, ColumnKind] | None = None) -> Source:
    """List the images of a table, one record per row; repeated rows stay repeated.

    With columns of boxes, each row is an object, and each image a record: see `_object_table.py`.

    `columns` gives the kinds of columns by their headers (`col3` without one); `label` also names the column
    that labels are taken from. `text` means class names for labels; `float` has NaN for empty cells; `path`
    is for images stored as a field. SourceError, naming the row, is raised for a malformed table, OptionError
    for invalid `columns`. An image that does not exist is found when its record is read.
    """
    folder = os.path.dirname(os.path.abspath(path))
    rows = _rows(path)
    header = next(rows, [])
    if header and not _is_header(header, folder):
        rows, header = itertools.chain([header], rows), [""] * len(header)
    first_row = next(rows, [])
    if not first_row:
        raise SourceError(f"{path}: must have a row for each image, got none: check the file")
    names = [name.strip() or f"col{number}" for number, name in enumerate(header, 1)]
    rows = itertools.chain([first_row], rows)
    if any(header) and (boxes := find_boxes(names, columns or {})) is not None:
        return _list_objects(path, header, names, rows, columns or {}, boxes)
    further, image, label = _assign_roles(path, names, first_row, columns or {})
    for row, cells in enumerate(rows, 1):
        for column, cell in zip(further, cells, strict=True):
            if not cell and column.kind == "path":
                step = "fill it in, or leave the row out"
                raise column.error(row, "name an image", "an empty cell", step)
            column.cells.append(cell)
    columns_of_table = tuple(further)
    further.remove(image)
    files = list_files(folder, image.cells)
    fields: list[TableField] = []
    labels = None if label is None else label.to_labels()
    if label is not None and labels is not None:
        further.remove(label)
        fields.append(labels)
    elif not further:
        unlabelled = np.full(len(files), NO_LABEL, np.int64)
        fields.append(TableField(Field.label(), unlabelled, f"none: {NO_LABEL} for every image"))
    taken = {"image", *(each.field.name for each in fields)}
    names_of = {image: "image"} | ({} if label is None or labels is None else {label: LABEL})
    paths: dict[str, TableField] = {}
    warnings = []
    for column in further:
        name = free_field_name(column.name, taken)
        if name != column.name:
            warnings.append(f"{path}: column {column.name!r} is stored as the field {name!r}")
        fields.append(column.to_field(name))
        names_of[column] = name
        if column.kind == "path":
            path_field = Field(free_field_name(f"{name}_path", taken), "text", internal=True)
            paths[name] = TableField(path_field, column.cells, "")
    numbers = [each for each in fields if each.field.kind == "scalar" and each.field != Field.label()]
    if len(numbers) >= _BOX_NUMBERS and len({*image.cells}) < len(files):
        warnings.append(f"{path}: its rows repeat images; {OBJECT_HEADER} as a header makes boxes of numbers")
    stored = [*fields, *paths.values()]
    return FileSource(
        kind="table",
        name=path,
        classes=() if labels is None else labels.classes,
        fields=tuple(each.field for each in stored),
        warnings=tuple(warnings),
        files=files,
        values={each.field.name: each.values for each in stored},
        table=path,
        columns={
            "image": f"paths of the images, {image.origin}",
            **{each.field.name: each.meaning for each in fields},
        },
        details={
            "table": os.path.basename(path),
            "header": header,
            "columns": [names_of[column] for column in columns_of_table],
            "paths": {name: each.field.name for name, each in paths.items()},
        },
    )


def _list_objects(
    path: str,
    header: Sequence[str],
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    columns: Mapping[str, ColumnKind],
    boxes: BoxColumns,
) -> Source:
    _check_kinds(path, names, columns)
    table = [TableColumn(path, name, columns.get(name)) for name in names]
    if boxes.label >= 0 and LABEL in columns:
        table[boxes.label].kind = columns[LABEL]
    for cells in rows:
        for column, cell in zip(table, cells, strict=True):
            column.cells.append(cell)
    image = next((column for column in table if column.name.lower() in PATH_HEADERS), table[0])
    return list_objects(path, header, table, image, boxes)


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
        raise malformed(path, "be a table that can be read", error.strerror, "make it readable") from error


def _is_header(row: Sequence[str], folder: str) -> bool:
    if os.path.isfile(os.path.join(folder, row[0])):
        return False
    return not os.path.splitext(row[0])[1] or any(cell.strip().lower() in PATH_HEADERS for cell in row)


def _check_kinds(path: str, names: Sequence[str], given: Mapping[str, ColumnKind]) -> None:
    for name, kind in given.items():
        if kind not in get_args(ColumnKind):
            raise OptionError(
                f"a column must be one of {', '.join(get_args(ColumnKind))}, got {name}={kind}: choose one"
            )
        if name not in (*names, LABEL):
            got = ", ".join(names)
            raise OptionError(f"{path}: must have a column {name!r} to be {kind}, got {got}: check its name")


def _assign_roles(
    path: str, names: Sequence[str], row: Sequence[str], given: Mapping[str, ColumnKind]
) -> tuple[list[TableColumn], TableColumn, TableColumn | None]:
    """Return all columns, the column of images, and that of labels, by headers, first row and kinds."""
    _check_kinds(path, names, given)
    columns = [TableColumn(path, name, given.get(name)) for name in names]
    images = [column for column in columns if column.name.lower() in PATH_HEADERS]
    if not images and not os.path.isfile(os.path.join(columns[0].folder, row[0])):
        images = [column for column in columns if column.kind == "path"]
    image = images[0] if images else columns[0]
    if image.kind not in (None, "path") and names.count(image.name) == 1:
        raise OptionError(f"{path}: the column {image.name!r} names the images, and cannot be {image.kind}")
    image.kind = "path"
    for column, cell in zip(columns, row, strict=True):
        if column.kind is None and column.names_image(cell):
            column.kind = "path"
    others = [column for column in columns if column.kind != "path"]
    headed = [column for column in others if column.name.lower() == LABEL]
    label = next(iter(headed + [column for column in others if column.kind is None]), None)
    if label is not None and label.kind is None and LABEL in given:
        label.kind = given[LABEL]
        label = None if label.kind == "path" else label
    elif LABEL in given and LABEL not in names:
        raise OptionError(f"{path}: must have a column left for the labels, got {', '.join(names)}")
    return columns, image, label
