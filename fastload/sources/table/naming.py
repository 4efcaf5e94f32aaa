"""The ways in which the cells of a column name images, and the choice of the column that does it best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fastload.sources.listing import is_image
from fastload.sources.table.columns import LABEL, LABEL_HEADERS, TableColumn

PATH_HEADERS = ("path", "file", "filename", "file_name", "image")
"""The headers of a column that must name images."""

IMAGE_HEADERS = (
    *("filepath", "imagepath", "imagefile", "imagefilename", "imagename", "img", "imgpath", "imgname"),
    *("imageid", "imgid", "picture", "photo", "id"),
)
"""Headers, without case and punctuation, of columns that often name images."""


class Naming(NamedTuple):
    """A way in which cells name files.

    `place` is the folder of the files, "" or ending in "/"; None if they are in several. With `is_id`, names
    lack their suffix.
    """

    place: str | None
    is_id: bool
    is_path: bool = False  # as the operating system takes it, from the table's folder

    @property
    def rank(self) -> int:
        """The order of preference among ways that name as many files."""
        elsewhere = 0 if self.place == "" else 2 if self.place is None else 1
        return 0 if self.is_path else 1 + elsewhere + 3 * self.is_id


AS_PATH = Naming("", is_id=False, is_path=True)


class Fit(NamedTuple):
    """The number of a column's sampled cells that name files, and the ways in which they do, equally good.

    `is_known` says that the column can only name images, even if most of them are missing.
    """

    hits: int
    cells: Sequence[str]
    namings: tuple[Naming, ...]
    is_known: bool

    @property
    def is_whole(self) -> bool:
        """True if every sampled cell names a file."""
        return self.hits == len(self.cells)

    @property
    def are_images(self) -> bool:
        """True if every sampled cell is the whole name of an image."""
        return self.is_whole and all(map(is_image, self.cells))


def best_columns(fits: Mapping[TableColumn, Fit]) -> list[TableColumn]:
    """Return the column of the records' images; several if nothing decides between them."""

    def rank(column: TableColumn) -> tuple[bool, bool, int]:
        header = column.plain_name
        at = IMAGE_HEADERS.index(header) if header in IMAGE_HEADERS else len(IMAGE_HEADERS)
        return column.name.lower() not in PATH_HEADERS, _has_unsaid_ids(column, fits[column]), at

    fitting = [column for column, fit in fits.items() if _names_most(column, fit)]
    if not fitting:
        return []
    least = min(map(rank, fitting))
    first, *others = [column for column in fitting if rank(column) == least]
    if not _has_unsaid_ids(first, fits[first]):
        return [first]
    # Numbers below a header that says nothing of images count something, unless they are the first column.
    are_counts = least[::2] == (True, len(IMAGE_HEADERS)) and all(map(str.isdigit, fits[first].cells))
    return [] if are_counts and first is not next(iter(fits)) else [first, *others]


def _has_unsaid_ids(column: TableColumn, fit: Fit) -> bool:
    """Return True if cells lack suffixes, and the user has not said that they name images."""
    return fit.namings[0].is_id and column.kind is None


def _names_most(column: TableColumn, fit: Fit) -> bool:
    """Return True if a column names files in most of its cells; if it can only name images, in one."""
    is_label = column.plain_name in (LABEL, *LABEL_HEADERS) and column.kind is None
    if not fit.hits or (is_label and fit.namings[0].is_id):
        return False
    return fit.is_known or 2 * fit.hits > len(fit.cells)
