"""Tables without images: the rows of texts and numbers are the records.

Such a table has a header, and no column that may name images: none has a header such as `path`, a cell with
an image's suffix, paths alone, or the name of an image file below the table's folder, with or without its
suffix. Where that is not certain, the table is refused, unless the user gives the kind of the column. Labels
are in the column `label`, or the one of that kind; every other column becomes a field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastload.sources.files import ListedSource, value_at
from fastload.sources.listing import is_image
from fastload.sources.malformed import malformed
from fastload.sources.protocol import SourceRecord
from fastload.sources.table.columns import (
    TableColumn,
)
from fastload.sources.table.images import ImageSearch
from fastload.sources.table.numbers import numbers_in


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


def require_header(path: str, header: Sequence[str], table: Sequence[TableColumn]) -> None:
    """Raise SourceError unless the first row holds names, which a row of data would not."""
    for name, column in zip(header, table, strict=True):
        if not name.strip() or numbers_in([name]) is not None or name in column.cells:
            must = "begin with a header that names its columns, as records without images are stored by name"
            step = "add one, or name the column of the images 'path'"
            raise malformed(path, must, repr(name) if name else "none", step)


def _first_name(search: ImageSearch, column: TableColumn) -> tuple[int, str] | None:
    """Return the first row, from 1, whose cell may name an image, and why."""
    filled = [(row, cell) for row, cell in enumerate(column.cells, 1) if cell]
    if not filled:
        return None
    first = filled[0][0]
    for row, cell in filled:
        if is_image(cell):
            return row, "which ends like an image's name"
    if all(_looks_like_path(cell) for _, cell in filled):
        return first, "which looks like a path"
    if row := next((row for row, cell in filled if search.has_stem(cell)), 0):
        return row, "the name of an image file below the table's folder"
    if search.may_name_images(column):
        return first, "which names none of the images below the table's folder"
    return None


def _looks_like_path(cell: str) -> bool:
    return ("/" in cell or "\\" in cell) and not any(map(str.isspace, cell)) and "://" not in cell
