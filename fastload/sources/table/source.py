"""CSV and TSV tables as sources: a column of image paths, one of labels, and any others.

The first row is a header if its first cell is not an existing file and either one of its cells is `path`,
`file`, `filename`, `file_name` or `image`, or its first cell has no suffix such as `.jpg`.

Paths are relative to the table's folder. They are in the column of one of those names; without one, in the
first column or, if its first cell is not an existing file, in the first column of the given kind `path`.
Labels are in the column `label`, else in the first remaining column without a given kind. The cells of that
column determine the labels:

    all integers        labels as they are; the classes are "0", "1", … up to the largest
    floats              no labels: the column becomes a field, as further columns do
    anything else       class names: the labels number them in sorted order

Without any image, the rows are records of their own: see `rows.py`.

Every further column becomes a field named by its header (`col3` without one), of the given kind. By default,
it holds images if its first cell is the path of one (a mask, a depth map), else int64, float64 or text, by
the rules of `columns.py`. Rows are counted from 1, without the header and blank lines.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO, get_args

import numpy as np

from fastload.errors import OptionError
from fastload.shards.schema import Field
from fastload.sources.files import NO_LABEL, FileSource, list_files, unreadable
from fastload.sources.listing import is_image
from fastload.sources.malformed import malformed
from fastload.sources.protocol import Source
from fastload.sources.table.columns import LABEL, ColumnKind, TableColumn, TableField, free_field_name
from fastload.sources.table.objects import OBJECT_HEADER, find_boxes, list_objects
from fastload.sources.table.rows import list_rows, require_no_images

TABLE_SUFFIXES = (".csv", ".tsv")
PATH_HEADERS = ("path", "file", "filename", "file_name", "image")

_BOX_NUMBERS = 3  # in a table without a header, the first of four is taken for the label

_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, decoded as UTF-8


def list_table(path: str, columns: Mapping[str, ColumnKind] | None = None) -> Source:
    """List the rows of a table, one record each, with the image that it names; repeated rows stay repeated.

    With columns of boxes, each row is an object, and each image is a record: see `objects.py`.

    `columns` gives the kinds of columns by their headers (`col3` without one); `label` also names the column
    that labels are taken from. `text` makes labels class names; `float` makes empty cells NaN; `path` is for
    images stored as a field. SourceError, naming the row, is raised for a malformed table, and OptionError
    for invalid `columns`. A missing image is reported when its record is read.
    """
    given = columns or {}
    header, table = _read(path, given)
    if any(header) and (boxes := find_boxes([column.name for column in table], given)) is not None:
        if boxes.label >= 0 and LABEL in given:
            table[boxes.label].kind = given[LABEL]
        named = (column for column in table if column.name.lower() in PATH_HEADERS)
        return list_objects(path, header, table, next(named, table[0]), boxes)
    if not _names_images(table):
        require_no_images(table)
        return list_rows(path, header, table, given)
    image, label = _assign_roles(path, table, given)
    for column in table:
        if column.kind == "path" and "" in column.cells:
            row, step = column.cells.index("") + 1, "fill it in, or leave the row out"
            raise column.error(row, "name an image", "an empty cell", step)
    files = list_files(image.folder, image.cells)
    fields: list[TableField] = []
    labels = None if label is None else label.to_labels()
    further = [column for column in table if column not in (image, labels and label)]
    if labels is not None:
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
            "columns": [names_of[column] for column in table],
            "paths": {name: each.field.name for name, each in paths.items()},
        },
    )


def _read(path: str, given: Mapping[str, ColumnKind]) -> tuple[list[str], list[TableColumn]]:
    """Return the header of a table, empty strings if it has none, and its columns."""
    rows = _rows(path)
    header = next(rows, [])
    if header and not _is_header(header, os.path.dirname(os.path.abspath(path))):
        rows, header = itertools.chain([header], rows), [""] * len(header)
    names = [name.strip() or f"col{number}" for number, name in enumerate(header, 1)]
    table = [TableColumn(path, name, given.get(name)) for name in names]
    for cells in rows:
        for column, cell in zip(table, cells, strict=True):
            column.cells.append(cell)
    if not table or not table[0].cells:
        raise malformed(path, "have a row for each image", "none", "check the file")
    for name, kind in given.items():
        if kind not in get_args(ColumnKind):
            kinds = ", ".join(get_args(ColumnKind))
            raise OptionError(f"a column must be one of {kinds}, got {name}={kind}: choose one")
        if name not in (*names, LABEL):
            got = ", ".join(names)
            raise OptionError(f"{path}: must have a column {name!r} to be {kind}, got {got}: check its name")
    return header, table


def _rows(path: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank; raise SourceError unless all have the same number of cells."""
    with _open(path) as file:
        start = file.readline()
        if start.startswith(_UTF_16):
            raise malformed(path, "be UTF-8", "UTF-16", "save it as 'CSV UTF-8'")
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
                    where, step = f"{path}, line {reader.line_num}", "quote cells that hold a delimiter"
                    raise malformed(where, f"have {width} cells as the first row has", len(cells), step)
                yield cells
        except csv.Error as error:
            where = f"{path}, line {reader.line_num}"
            raise malformed(where, "be a row of a table", error, "check its quotes") from error


def _open(path: str) -> TextIO:
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer
        raise malformed(path, "be a file", "a pipe or a device", "write the table to a file first")
    try:
        return open(path, newline="", encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise unreadable(path, error) from error


def _is_header(row: Sequence[str], folder: str) -> bool:
    if os.path.isfile(os.path.join(folder, row[0])):
        return False
    return not os.path.splitext(row[0])[1] or any(cell.strip().lower() in PATH_HEADERS for cell in row)


def _names_images(table: Sequence[TableColumn]) -> bool:
    """Return True if a column is known to name images: by its header, its kind, or its cells."""
    first = table[0]
    if any(column.kind == "path" or column.name.lower() in PATH_HEADERS for column in table):
        return True
    is_file = os.path.isfile(os.path.join(first.folder, first.cells[0]))
    return first.kind is None and (is_file or all(map(is_image, first.cells)))


def _assign_roles(
    path: str, table: Sequence[TableColumn], given: Mapping[str, ColumnKind]
) -> tuple[TableColumn, TableColumn | None]:
    """Find the columns of images and of labels by headers, first row and kinds; set the kinds of columns."""
    names = [column.name for column in table]
    images = [column for column in table if column.name.lower() in PATH_HEADERS]
    if not images and not os.path.isfile(os.path.join(table[0].folder, table[0].cells[0])):
        images = [column for column in table if column.kind == "path"]
    image = images[0] if images else table[0]
    if image.kind not in (None, "path") and names.count(image.name) == 1:
        raise OptionError(f"{path}: the column {image.name!r} names the images, and cannot be {image.kind}")
    image.kind = "path"
    for column in table:
        if column.kind is None and column.names_image(column.cells[0]):
            column.kind = "path"
    others = [column for column in table if column.kind != "path"]
    headed = [column for column in others if column.name.lower() == LABEL]
    label = next(iter(headed + [column for column in others if column.kind is None]), None)
    if label is not None and label.kind is None and LABEL in given:
        label.kind = given[LABEL]
        label = None if label.kind == "path" else label
    elif LABEL in given and LABEL not in names:
        raise OptionError(f"{path}: must have a column left for the labels, got {', '.join(names)}")
    return image, label
