"""Search for the images that a table names: the column, the folder of the files, and the ends of their names.

A column names images if its cells are, in one of these ways, existing files:

    paths         relative to the table's folder, or absolute
    names         of files in folders below it, each in one of them alone
    ids           the same without the suffixes: `0a` for `0a.jpg`

Sampled cells show the way. Headers decide only between columns that name images equally well. Between folders
with the same names, their own names decide, never the number of images found in each: see `_own_places`.
Where nothing decides, the table is refused.
"""

from __future__ import annotations

import enum
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from fastload.errors import SourceError
from fastload.sources.files import NameTable
from fastload.sources.listing import Folder, Listing, is_image, stem_of
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import evenly_spaced
from fastload.sources.splits import splits_in
from fastload.sources.table.columns import LABEL, LABEL_HEADERS, TableColumn
from fastload.sources.words import is_image_part, is_part, is_result

PATH_HEADERS = ("path", "file", "filename", "file_name", "image")
"""The headers of a column that must name images."""

IMAGE_HEADERS = (
    *("filepath", "imagepath", "imagefile", "imagefilename", "imagename", "img", "imgpath", "imgname"),
    *("imageid", "imgid", "picture", "photo", "id"),
)
"""Headers, without case and punctuation, of columns that often name images."""

_SAMPLED = 64


class Naming(enum.IntEnum):
    """A way in which cells name files, in the order of preference among ways that name as many.

    A path is taken as the operating system does, from the table's folder; an id lacks its file's suffix.
    """

    PATH = 0
    NAME = 1
    ID = 2


class Fit(NamedTuple):
    """The number of a column's sampled cells that name files, in which way, and relative to which folders.

    `is_known` says that the column can only name images, even if most of them are missing.
    """

    column: TableColumn
    hits: int
    cells: Sequence[str]
    naming: Naming
    is_known: bool
    places: frozenset[str] = frozenset()

    @property
    def is_whole(self) -> bool:
        """True if every sampled cell names a file."""
        return 0 < self.hits == len(self.cells)

    @property
    def has_unsaid_ids(self) -> bool:
        """True if cells lack suffixes, and the user has not said that they name images."""
        return self.naming is Naming.ID and self.column.kind is None

    @property
    def names_most(self) -> bool:
        """True if the column names files in most of its cells; if it can only name images, in one."""
        if not self.hits or (self.has_unsaid_ids and self.column.plain_name in (LABEL, *LABEL_HEADERS)):
            return False
        return self.is_known or 2 * self.hits > len(self.cells)

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """The order of preference among columns that name images."""
        header = self.column.plain_name
        at = IMAGE_HEADERS.index(header) if header in IMAGE_HEADERS else len(IMAGE_HEADERS)
        has_path = self.column.name.lower() in PATH_HEADERS
        return not has_path, self.column.has_empty, self.has_unsaid_ids, at


def best_fits(fits: Sequence[Fit]) -> list[Fit]:
    """Return the column of the records' images; several if nothing decides between them."""
    fitting = [fit for fit in fits if fit.names_most]
    if not fitting:
        return []
    least = min(fit.rank for fit in fitting)
    first, *others = [fit for fit in fitting if fit.rank == least]
    if not first.has_unsaid_ids:
        return [first]
    # Numbers below a header that says nothing of images count something, unless they are the first column.
    are_counts = least[0] and least[-1] == len(IMAGE_HEADERS) and all(map(str.isdigit, first.cells))
    return [] if are_counts and first is not fits[0] else [first, *others]


class ImageSearch:
    """The images below the folder of tables, listed when they are first needed."""

    def __init__(self, table: str) -> None:
        self.folder = os.path.dirname(os.path.abspath(table))

    def may_name_images(self, column: TableColumn) -> bool:
        """Return True for a column with a header of images beside which some lie that it does not name."""
        return column.kind is None and column.plain_name in IMAGE_HEADERS and bool(self._by_stem)

    @cached_property
    def listing(self) -> Listing:
        """The folders below the table's; one that cannot be listed is empty."""
        return Listing.walk(self.folder, skips_unlistable=True)

    @property
    def folders(self) -> list[Folder]:
        """The folders below the table's that are not hidden."""
        return self.listing.visible

    @cached_property
    def _by_stem(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for folder in self.folders:
            prefix = folder.join("")
            for name in folder.images:
                found.setdefault(os.path.splitext(name)[0], []).append(prefix + name)
        return found

    def has_stem(self, cell: str) -> bool:
        """Return True if a cell names an image below the table's folder, without its suffix."""
        return any(self._files_of(cell, Naming.ID))

    def find(self, columns: Sequence[TableColumn]) -> TableColumn | None:
        """Return the column of the records' images, and set the files of all columns of images.

        Return None if no column names images, and none has to. SourceError is raised if one has to and does
        not, or if the column or the folder of its files may be another one.
        """
        fits = self._fits(columns)
        best = best_fits(fits)
        if not best:
            for column in (fit.column for fit in fits if fit.is_known):
                raise self._none_found(column)
            return None
        image, *others = (fit.column for fit in best)
        if others:
            got = f"two, {image.name!r} and {others[0].name!r}"
            step = f"pack with {image.options(path='it names them')} or {others[0].options(path='it does')}"
            raise malformed(image.table, "have one column of the images' names without suffixes", got, step)
        for fit in fits:
            column, first = fit.column, fit.column.cells[0]
            are_images = fit.is_whole and all(map(is_image, fit.cells))
            if column.kind is None and (are_images or (is_image(first) and column.names_file(first))):
                column.kind = "path"
            if column is image or (column.kind == "path" and fit.hits):
                self._settle(fit)
        image.kind = "path"
        if image.has_empty:
            raise image.error_of("", "name an image", "fill it in, or leave the row out")
        return image

    def is_row(self, cells: Sequence[str], columns: Sequence[TableColumn]) -> bool | None:
        """Return True if cells before some columns name an image as they do; None if no column names any."""
        best = best_fits(self._fits(columns))
        if not best:
            return None
        for fit in best:
            cell = cells[columns.index(fit.column)]
            if is_image(cell) or self._names(fit, cell):
                return True
        return False

    def _fits(self, columns: Sequence[TableColumn]) -> list[Fit]:
        """Return, for each column that may be of images, the ways in which its cells name some."""
        fits: list[Fit] = []
        for column in (each for each in columns if each.kind in (None, "path")):
            filled = column.filled
            cells = [column.cells[filled[at]] for at in evenly_spaced(len(filled), _SAMPLED)]
            # A column can only name images by its header, its kind, or as a first column.
            is_known = column.kind == "path" or column.name.lower() in PATH_HEADERS
            if column is columns[0] and not is_known:
                is_known = (bool(cells) and all(map(is_image, cells))) or column.names_file(column.cells[0])
            hits = sum((is_known or is_image(cell)) and column.names_file(cell) for cell in cells)
            fits.append(Fit(column, hits, cells, Naming.PATH, is_known))
        # The folders are listed only for names that are no paths.
        has_paths = any(fit.is_whole and not fit.column.has_empty for fit in fits)
        return [self._fit(fit, has_paths=has_paths) for fit in fits]

    def _names(self, fit: Fit, cell: str) -> bool:
        """Return True if a cell names an existing file as those of a column do."""
        if fit.naming is Naming.PATH:
            return fit.column.names_file(cell)
        return any(place in fit.places for place, _ in self._files_of(cell, fit.naming))

    def _fit(self, fit: Fit, *, has_paths: bool) -> Fit:
        """Return the best way in which a column's cells name images, given the paths among them."""
        may_be_names = not has_paths or fit.is_known or all(map(is_image, fit.cells))
        if not fit.cells or fit.is_whole or not may_be_names:
            return fit
        for naming in (Naming.NAME, Naming.ID):
            found = [{place for place, _ in self._files_of(cell, naming)} for cell in fit.cells]
            if (hits := sum(map(bool, found))) > fit.hits:
                fit = fit._replace(hits=hits, naming=naming, places=frozenset().union(*found))
        return fit

    def _files_of(self, cell: str, naming: Naming) -> Iterator[tuple[str, str]]:
        """Yield the images of a cell's name, each after the folder that the name is relative to."""
        name, is_id = plain_path(cell), naming is Naming.ID
        base = name[name.rfind("/") + 1 :]
        for path in self._by_stem.get(base if is_id else os.path.splitext(base)[0], ()):
            end = path[: path.rindex(".")] if is_id else path
            place = end[: len(end) - len(name)]
            if end.endswith(name) and (not place or place.endswith("/")):
                yield place, path

    def _settle(self, fit: Fit) -> None:
        """Set the files of a column; raise SourceError if cells may name those of two folders."""
        column, naming = fit.column, fit.naming
        if naming is Naming.PATH:
            return
        found: list[list[str]] = []
        together: Counter[tuple[str, ...]] = Counter()  # the folders of each cell's files
        for cell in column.cells:
            files = [*self._files_of(cell, naming)]
            found.append([path for _, path in files])
            together[tuple(place for place, _ in files)] += 1
        places = {place for each in together for place in each}
        chosen = _own_places(column, places)
        if "" in chosen and all("" in each for each in together if each):
            chosen = {""}
        if not chosen or any(len(chosen.intersection(each)) > 1 for each in together):
            got = f"names that are in {in_quotes(sorted(chosen or places))}"
            step = (
                "write their paths in the table, or move it into their folder; a column of paths for each "
                "image of a record, such as image and mask, keeps those of all folders"
            )
            must = (
                "name images of one folder"
                if chosen
                else "name images of the split that the table is named after"
            )
            raise malformed(f"{column.table}, {column.name}", must, got, step)
        if chosen != places:
            pairs = (self._files_of(cell, naming) for cell in column.cells)
            found = [[path for place, path in each if place in chosen] for each in pairs]
        self._set_files(column, naming, chosen, found)

    def _set_files(
        self, column: TableColumn, naming: Naming, places: set[str], found: list[list[str]]
    ) -> None:
        """Set the files of a column, and how its cells name them in words, by the files found for each cell.

        Raises SourceError if a cell names two files.
        """
        suffixes = Counter(os.path.splitext(path)[1] for paths in found for path in paths)
        if any(len(paths) > 1 for paths in found):
            # In a folder with a .jpg and a .png for some names, one suffix may be that of all.
            whole = [suffix for suffix, count in suffixes.items() if count == sum(map(bool, found))]
            if naming is Naming.ID and len(whole) == 1:
                found = [[path for path in paths if path.endswith(whole[0])] for paths in found]
                suffixes = Counter(whole)
            row = next((row for row, paths in enumerate(found, 1) if len(paths) > 1), 0)
            if row:
                got = f"{column.cells[row - 1]!r}, the name of {in_quotes(found[row - 1])}"
                step = "write the paths of the images, as they are relative to the table"
                raise column.error(row, "name one image", got, step)
        added = [suffix for suffix, _ in suffixes.most_common()] if naming is Naming.ID else []
        end = added[0] if added else ""
        place = next(iter(places)) if len(places) == 1 else ""
        column.files = NameTable(
            paths[0] if paths else cell and f"{place}{plain_path(cell)}{end}"
            for paths, cell in zip(found, column.cells, strict=True)
        )
        if places == {""} and not added:
            return
        folders = sorted({paths[0][: paths[0].rfind("/") + 1] for paths in found if paths})
        folders = folders if len(places) > 1 else [place]
        shown = [folder or "the table's folder" for folder in folders]
        where = shown[0] if len(shown) == 1 else f"{len(shown)} folders, {shown[0]} to {shown[-1]}"
        column.naming = f"names of files in {where}" + (f", with {' or '.join(added)} added" if added else "")

    def _none_found(self, column: TableColumn) -> SourceError:
        """Return the error about a column that should name images, none of which exists."""
        cell = next(filter(None, column.cells), "")
        if not cell:
            return column.error_of("", "name an image", "fill it in, or leave the row out")
        images = [path for paths in self._by_stem.values() for path in paths][:2]
        there = f"there are {in_quotes(images)}" if images else "there are no images"
        got = f"{cell!r}, which is no file in {self.folder} or below, with or without a suffix ({there})"
        step = "correct the names, or move the table to the folder that they are relative to"
        if column.kind is None:
            step += f"; or pack with {column.options(text='no column names images')}"
        return column.error(1, "name existing images", got, step)


def _own_places(column: TableColumn, places: set[str]) -> set[str]:
    """Return the folders that are a column's own by their names; none if all are those of other splits.

    Folders of masks and labels are those of a column with such a header, and of no other. Folders may be
    named after the table, or its split: train/ or train_images/ after train.csv.
    """
    is_of_results = is_result(column.name)
    places = {place for place in places if _is_of_annotations(place) == is_of_results} or places
    stem = stem_of(column.table)
    pattern = re.compile(rf"{re.escape(stem)}([_ -].*)?", re.IGNORECASE)
    splits = splits_in(stem)
    named = {place for place in places if any(map(pattern.fullmatch, place.split("/")))}
    named |= {place for place in places if splits & splits_in(place)}
    return named or {place for place in places if not (splits and splits_in(place))}


def _is_of_annotations(place: str) -> bool:
    """Return True if the last folder that is named after a part of a dataset is one of annotations."""
    parts = [*filter(is_part, place.split("/"))]
    return bool(parts) and not is_image_part(parts[-1])


def plain_path(cell: str) -> str:
    """Return a path with `/` between its parts, without `.` and `..`."""
    if "\\" in cell:
        cell = cell.replace("\\", "/")
    return posixpath.normpath(cell) if "./" in cell or "//" in cell else cell
