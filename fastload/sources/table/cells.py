"""Reading and writing of tables: the delimiter, the header and the cells, column by column.

The cells of a text are delimited as in a .csv file or, without such delimiters, by spaces. As in CelebA's
files, its first line may be the number of rows, and its header may lack a name for the first column. In JSON,
a table is a list of objects, an object that gives each image's value, or StyleGAN's pairs under "labels".
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TextIO, get_args

import numpy as np

from fastload.errors import DamageError, OptionError
from fastload.shards.json_values import JsonValue
from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.schema import Field
from fastload.sources.files import read_text, unreadable
from fastload.sources.malformed import explaining, is_finite, malformed, quoted
from fastload.sources.table.columns import LABEL, ColumnKind, TableColumn, are_class_names
from fastload.sources.table.images import PATH_HEADERS, ImageSearch
from fastload.sources.writing import LayoutWriter, WrittenFiles, number_text, safe_path

TEXT_SUFFIXES = (".txt", ".lst")
"""The suffixes of texts that may be tables of images."""

JSON_SUFFIXES = (".json", ".jsonl")

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", *TEXT_SUFFIXES, *JSON_SUFFIXES)
"""The suffixes of tables."""

WRITE_TABLE = (
    "write a table of it (a .csv with the columns image,label or, for boxes, "
    "image,xmin,ymin,xmax,ymax,label), and pack that"
)
"""The next step for labels in a form that is not read."""

_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")  # its byte order marks, decoded as UTF-8
_DELIMITERS = (",", ";", "\t")
_EXCEL_DELIMITER = re.compile(r'"?sep=(.)"?\s*')  # the first line of some of Excel's tables
_PORTION = 4096


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table, its header, empty strings if it has none, and the kinds that the user gave."""

    path: str
    header: list[str]
    columns: list[TableColumn]
    given: Mapping[str, ColumnKind]

    @property
    def has_header(self) -> bool:
        """True if the first row holds names of columns."""
        return any(self.header)


def read_table(path: str, search: ImageSearch, given: Mapping[str, ColumnKind]) -> Table:
    """Read a table.

    SourceError is raised for a malformed table, and OptionError for kinds that do not fit its columns.
    """
    rows = _rows_of_json(path) if path.lower().endswith(JSON_SUFFIXES) else _rows_of_text(path)
    first = next(rows, [])
    portion = list(itertools.islice(rows, _PORTION))
    header = first
    if first and not _is_header(path, search, first, portion):
        portion, header = [first, *portion], [""] * len(first)
    columns = _columns(path, header, given)
    while portion:
        for column, cells in zip(columns, zip(*portion, strict=True), strict=True):
            column.cells.extend(cells)
        portion = list(itertools.islice(rows, _PORTION))
    if not columns or not columns[0].cells:
        raise malformed(path, "have a row for each image", "none", "check the file")
    _check_kinds(path, [column.name for column in columns], given)
    return Table(path, header, columns, given)


def _columns(path: str, header: Sequence[str], given: Mapping[str, ColumnKind]) -> list[TableColumn]:
    names = [name.strip() or f"col{number}" for number, name in enumerate(header, 1)]
    return [TableColumn(path, name, given.get(name)) for name in names]


def _check_kinds(path: str, names: Sequence[str], given: Mapping[str, ColumnKind]) -> None:
    """Raise OptionError for a kind that is none, or one of a column that the table lacks."""
    for name, kind in given.items():
        if kind not in get_args(ColumnKind):
            kinds = ", ".join(get_args(ColumnKind))
            raise OptionError(f"a column must be one of {kinds}, got {name}={kind}: choose one")
        if name not in (*names, LABEL):
            got = ", ".join(names)
            raise OptionError(f"{path}: must have a column {name!r} to be {kind}, got {got}: check its name")
    labels = [name for name, kind in given.items() if kind == LABEL]
    if len(labels) > 1:
        got = " and ".join(map(repr, labels))
        raise OptionError(f"{path}: must have one column of labels, got {got}: leave one out")


def _is_header(path: str, search: ImageSearch, first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return True if a table's first row is not one more row, by the images that the next rows name."""
    # A single row, which may be all that there is, is compared with itself.
    table = _columns(path, first if rows else [""] * len(first), {})
    for column, cells in zip(table, zip(*(rows or [first]), strict=True), strict=True):
        column.cells.extend(cells)
    is_row = search.is_row(first, table)
    if is_row is not None:
        return not is_row
    if os.path.isfile(os.path.join(search.folder, first[0])):
        return False
    return not os.path.splitext(first[0])[1] or any(cell.strip().lower() in PATH_HEADERS for cell in first)


def _rows_of_text(path: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank; raise SourceError unless all have the same number of cells."""
    is_text = path.lower().endswith(TEXT_SUFFIXES)
    with _open(path) as file:
        start = file.readline()
        if start.startswith(_UTF_16):
            raise malformed(path, "be UTF-8", "UTF-16", "save it as 'CSV UTF-8'")
        stated = _EXCEL_DELIMITER.fullmatch(start)
        skipped = 1 if stated is not None or (is_text and start.strip().isdigit()) else 0
        if is_text and skipped:
            start = file.readline()
        delimiter = delimiter_of(start) if stated is None else stated[1]
        if path.lower().endswith((".tsv", ".tab")):
            delimiter = "\t"
        # Spaces belong to a cell, unless the first row has one after every delimiter.
        has_spaces = start.count(delimiter) == start.count(f"{delimiter} ") > 0
        file.seek(0)
        lines: Iterator[str] = itertools.islice(file, skipped, None)
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
        if is_text and delimiter not in start:
            lines, delimiter, quoting = _with_single_spaces(lines), " ", csv.QUOTE_NONE
        reader = csv.reader(
            lines, delimiter=delimiter, skipinitialspace=has_spaces, strict=True, quoting=quoting
        )
        width = 0
        try:
            for cells in filter(None, reader):
                width = width or len(cells)
                if len(cells) != width:
                    where = f"{path}, line {skipped + reader.line_num}"
                    step = "quote cells that hold a delimiter"
                    raise malformed(where, f"have {width} cells as the first row has", len(cells), step)
                yield cells
        except csv.Error as error:
            where = f"{path}, line {skipped + reader.line_num}"
            raise malformed(where, "be a row of a table", error, "check its quotes") from error


def delimiter_of(start: str) -> str:
    """Return the delimiter of a table by its first line; `|` may separate values within cells, too."""
    delimiter = max(_DELIMITERS, key=start.count)
    return "|" if delimiter not in start and "|" in start else delimiter


def _with_single_spaces(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines with one space between cells, and a name for a first column that the header lacks."""
    header, first = next(lines, ""), next(lines, "")
    if len(header.split()) + 1 == len(first.split()):
        header = f"image {header}"
    return map(" ".join, map(str.split, itertools.chain([header, first], lines)))


def _rows_of_json(path: str) -> Iterator[list[str]]:
    """Yield the header and the rows of a table in JSON."""
    must = "be a list of flat objects with equal keys, an object of images and labels, or StyleGAN's labels"
    errors = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
    with explaining(errors, path, must, WRITE_TABLE):
        text = read_text(path)
        are_lines = path.lower().endswith(".jsonl")
        data = [*map(json.loads, text.splitlines())] if are_lines else json.loads(text)
        if isinstance(data, dict):
            pairs = data["labels"] if isinstance(data.get("labels"), list) else data.items()
            data = [{"image": image, "label": label} for image, label in pairs]
        header = [*data[0]]
        yield header
        for number, row in enumerate(data, 1):
            if row.keys() != data[0].keys():
                raise ValueError(f"other keys in object {number}")
            yield [_json_cell(row[name]) for name in header]


def _json_cell(value: object) -> str:
    """Return a value as a cell; a list of numbers, such as a box, as JSON."""
    if isinstance(value, dict) or (isinstance(value, list) and not (value and all(map(is_finite, value)))):
        raise ValueError(f"a value with others inside, {quoted(value)}")
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _open(path: str) -> TextIO:
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer
        raise malformed(path, "be a file", "a pipe or a device", "write the table to a file first")
    try:
        return open(path, newline="", encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise unreadable(path, error) from error


class TableWriter(LayoutWriter):
    """Writer of a table, and of the image files that its further columns name.

    Rows of objects stay as they were, except for the path of a changed file and the boxes of a resized image.
    """

    def __init__(self, manifest: Manifest, split: str) -> None:
        super().__init__(manifest, split)
        self._rows: list[tuple[int, list[str]]] = []

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if (places := self.details.get("objects")) is not None:
            self._add_objects(record, image, places)
            return
        cells = {"image": image.as_posix()}
        for name, path in self.details["paths"].texts().items():
            cells[name] = safe_path(Path(), record[path]).as_posix() if record[path] else ""
            if cells[name]:
                yield cells[name], bytes(record.stored(name))
        columns = [each.text() for each in self.details["columns"].each()]
        for name in columns:
            if name not in cells:
                value, classes = record[name], self.manifest.classes
                is_class = name == "label" and 0 <= value < len(classes)
                cells[name] = classes[value] if is_class else str(value)
        self._rows.append((len(self._rows), [cells[name] for name in columns]))

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        name, header = self.details["table"].text(), [each.text() for each in self.details["header"].each()]
        name = f"{name}.csv" if name.lower().endswith(JSON_SUFFIXES) else name
        rows = [*([header] if any(header) else []), *(cells for _, cells in sorted(self._rows))]
        # Readers may drop the leading spaces of unquoted cells.
        has_spaces = any(cell.startswith(" ") for row in rows for cell in row)
        text = io.StringIO(newline="")
        csv.writer(
            text,
            delimiter="," if name.lower().endswith(".csv") else "\t",
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if has_spaces else csv.QUOTE_MINIMAL,
        ).writerows(rows)
        yield name, text.getvalue().encode("utf-8", "surrogateescape")

    def _add_objects(self, record: Record, image: PurePosixPath, places: JsonValue) -> None:
        image_at, boxes = places["image"].count(), iter(record["boxes"].tolist())
        box_at, size_at = ([each.count() for each in places[name].each()] for name in ("box", "size"))
        size = record.image_shape()[:2]
        for number, *cells in map(json.loads, record["rows"]):
            cells[image_at] = image.as_posix()
            if self.manifest.made.get("limit") and any(cells[at].strip() for at in box_at):
                changed = [number_text(value) for value in next(boxes)]
                changed = changed if len(box_at) > 1 else [f"[{', '.join(changed)}]"]
                for at, text in zip(box_at, changed, strict=True):
                    cells[at] = text
                for at, side in zip(size_at, size, strict=False):
                    cells[at] = str(side)
            self._rows.append((number, cells))


class LabelTable:
    """Writer of a table with a row for each record."""

    def __init__(
        self,
        write_row: Callable[[Iterable[object]], object],
        reader: RecordReader,
        fields: Sequence[Field],
        images: Sequence[Field],
    ) -> None:
        self._write_row = write_row
        self._fields = fields
        self._classes = reader.manifest.classes
        has_label = any(field.name == "label" for field in fields)
        are_numbers = self._classes == tuple(map(str, range(len(self._classes))))  # or there are none
        self._has_names = has_label and not are_numbers
        self._names_are_labels = self._has_names and _names_give_labels(reader)
        extra = ["class"] if self._has_names and not self._names_are_labels else []
        names = [field.name for field in images]
        paths = ["path"] if reader.manifest.image is not None else []
        write_row([*paths, *(field.name for field in fields), *extra, *names])

    def add(self, paths: Sequence[str], record: Record) -> None:
        """Write the row of a record whose images, if it has any, are at `paths`."""
        row = {field.name: record[field.name] for field in self._fields}
        if self._has_names:
            label = row["label"]
            name = self._classes[label] if 0 <= label < len(self._classes) else ""
            row["label" if self._names_are_labels else "class"] = name
        self._write_row([*paths[:1], *row.values(), *paths[1:]])


def _names_give_labels(reader: RecordReader) -> bool:
    """Return True if `pack` would derive the same labels from the class names.

    It numbers the names in sorted order, and does not accept numbers or file names as class names.
    """
    classes = reader.manifest.classes
    try:
        labels = {int(label) for label in np.unique(reader.column("label"))}
    except DamageError:
        return False
    is_same_order = labels == set(range(len(classes))) and list(classes) == sorted({*classes} - {""})
    return is_same_order and are_class_names(classes)
