"""Tables without images: the rows of texts and numbers are the records.

Such a table has a header, and no column that may name images: none has a header such as `path`, a cell with
an image's suffix, paths alone, or the name of an image file below the table's folder, with or without its
suffix. Where that is not certain, the table is refused, unless the user gives the kind of the column. Labels
are in the column `label`, or the one of that kind; every other column becomes a field.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fastload.errors import OptionError
from fastload.sources.files import ListedSource, list_files, value_at
from fastload.sources.listing import Listing, is_image
from fastload.sources.malformed import malformed
from fastload.sources.protocol import SourceRecord
from fastload.sources.table.columns import (
    LABEL,
    ColumnKind,
    TableColumn,
    TableField,
    free_field_name,
    numbers_in,
)
from fastload.sources.table.images import ImageSearch

_LONGEST_NAME = 255  # bytes, of a file on most systems


@dataclass(eq=False, kw_only=True)
class RowSource(ListedSource):
    """A `Source` of the rows of a table without images."""

    rows: int

    def __len__(self) -> int:
        return self.rows

    def read(self, index: int) -> SourceRecord:
        """Read one row."""
        values = {name: value_at(column, index) for name, column in self.values.items()}
        return SourceRecord(self.key(index), None, values)


def require_no_images(search: ImageSearch, table: Sequence[TableColumn]) -> None:
    """Raise SourceError if a column whose kind is not given may name the images of the records."""
    for column in table:
        if column.kind is None and (found := _first_name(search, column)):
            row, why = found
            got = f"{column.cells[row - 1]!r}, {why}"
            options = column.options(path="images of the records", text="records without images")
            raise column.error(row, "hold names of images, or certainly none", got, f"pack with {options}")


def list_rows(
    path: str, header: Sequence[str], table: Sequence[TableColumn], given: Mapping[str, ColumnKind]
) -> RowSource:
    """List the rows of a table whose columns hold no images, one record each."""
    _require_header(path, header, table)
    named = [column for column in table if column.kind == LABEL]
    named += [column for column in table if column.name.lower() == LABEL]
    label = next(iter(named), None)
    if LABEL in given and label is None:
        raise OptionError(f"{path}: must have a column 'label' to be {given[LABEL]}: check its name")
    labels = None if label is None else label.to_labels()
    taken: set[str] = set() if labels is None else {LABEL}
    fields: list[TableField] = []
    names = []
    for column in table:
        is_label = labels is not None and column is label
        names.append(LABEL if is_label else free_field_name(column.name, taken))
        fields.append(labels if labels is not None and is_label else column.to_field(names[-1]))
    renamed = [(column.name, name) for column, name in zip(table, names, strict=True) if column.name != name]
    return RowSource(
        kind="table",
        name=path,
        classes=() if labels is None else labels.classes,
        fields=tuple(each.field for each in fields),
        warnings=(
            f"{path}: no column names images: its rows are packed as records without images",
            *(f"{path}: column {old!r} is stored as the field {new!r}" for old, new in renamed),
        ),
        files=list_files(os.path.dirname(os.path.abspath(path)), [os.path.basename(path)]),
        values={each.field.name: each.values for each in fields},
        columns={each.field.name: each.meaning for each in fields},
        details={"table": os.path.basename(path), "header": list(header), "columns": names, "paths": {}},
        has_images=False,
        rows=len(table[0].cells),
    )


def _require_header(path: str, header: Sequence[str], table: Sequence[TableColumn]) -> None:
    """Raise SourceError unless the first row holds names, which a row of data would not."""
    for name, column in zip(header, table, strict=True):
        if not name.strip() or numbers_in([name]) is not None or name in column.cells:
            must = "begin with a header that names its columns, as records without images are stored by name"
            step = "add one, or name the column of the images 'path'"
            raise malformed(path, must, repr(name) if name else "none", step)


def _first_name(search: ImageSearch, column: TableColumn) -> tuple[int, str] | None:
    """Return the first row, from 1, whose cell may name an image, and why."""
    for row, cell in enumerate(column.cells, 1):
        if is_image(cell):
            return row, "which ends like an image's name"
    filled = [row for row, cell in enumerate(column.cells, 1) if cell]
    if filled and all(_looks_like_path(column.cells[row - 1]) for row in filled):
        return filled[0], "which looks like a path"
    rows: dict[str, int] = {}
    for row, cell in enumerate(column.cells, 1):
        if 0 < len(cell) <= _LONGEST_NAME and "\n" not in cell:
            rows.setdefault(cell, row)
    name = next(_names_of_images(search.listing, rows), None)
    if name is not None:
        return rows[name], "the name of an image file below the table's folder"
    if filled and search.may_name_images(column):
        return filled[0], "which names none of the images below the table's folder"
    return None


def _looks_like_path(cell: str) -> bool:
    return ("/" in cell or "\\" in cell) and not any(map(str.isspace, cell)) and "://" not in cell


def _names_of_images(listing: Listing, names: Collection[str]) -> Iterator[str]:
    """Yield those of the names that an image in a listing has, with or without its suffix or folder."""
    for folder in listing.folders.values():
        for file in folder.images:
            stem = os.path.splitext(file)[0]
            for name in (file, stem, folder.join(file), folder.join(stem)):
                if name in names:
                    yield name
