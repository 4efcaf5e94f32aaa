"""CSV and TSV tables as sources: a column that names images, one of labels, and any others.

docs/cli.md has the rules. The images are found by evidence: see `images.py`. The first row is a header unless
it names an image as the others do. With columns of boxes, the rows are objects: see `objects.py`. Every
further column becomes a field by the rules of `columns.py` and `numbers.py`. Rows are counted from 1, without
the header and blank lines.

Without any image, the rows are records of their own. Such a table has a header, and no column that may name
images: none has a header such as `path`, a cell with an image's suffix, paths alone, or the name of an image
file below the table's folder, with or without its suffix. Where that is not certain, the table is refused,
unless the user gives the kind of the column. Only the column `label`, or the one of that kind, holds labels.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fastload.contracts import SourceRecord
from fastload.errors import FastloadError, OptionError
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources.file_source import FileSource, ListedSource
from fastload.sources.files import NO_LABEL, FileList, list_files
from fastload.sources.left_out import LeftOutFiles
from fastload.sources.listing import Listing, is_image, stem_of
from fastload.sources.malformed import malformed
from fastload.sources.protocol import Source
from fastload.sources.splits import splits_in
from fastload.sources.table.cells import TABLE_SUFFIXES, TEXT_SUFFIXES, WRITE_TABLE, Table, read_table
from fastload.sources.table.columns import (
    LABEL,
    LABEL_HEADERS,
    ColumnKind,
    TableColumn,
    TableField,
    free_field_name,
)
from fastload.sources.table.images import ImageSearch, plain_path
from fastload.sources.table.numbers import numbers_in
from fastload.sources.table.objects import OBJECT_HEADER, find_boxes, list_objects

_BOX_NUMBERS = 4  # in a table without a header
_MOST_SINGLE = 2  # classes that hardly repeat, in a text without a header: it may hold transcriptions
_VIA_HEADER = "region_shape_attributes"
_UNNAMED = "an image that no row of the table names"


def list_table(path: str, columns: Mapping[str, ColumnKind] | None = None) -> Source:
    """List the rows of a table, one record each, with the image that it names; repeated rows stay repeated.

    With columns of boxes, each row is an object, and each image is a record.

    `columns` gives the kinds of columns by their headers (`col3` without one): `label` is for the column that
    labels are taken from, which is also named by `label` itself. `text` makes labels class names; `float`
    makes empty cells NaN; `path` is for names of images. SourceError, naming the row, is raised for a
    malformed table, and OptionError for invalid `columns`. A missing image is reported when its record is
    read.
    """
    search = ImageSearch(path)
    table = read_table(path, search, columns or {})
    if _VIA_HEADER in table.header:
        got = f"regions of VIA in the column {_VIA_HEADER!r}"
        raise malformed(path, "hold boxes in columns", got, "export them as COCO from VIA, and pack that")
    boxes = find_boxes(table) if table.has_header else None
    image = search.find(table.columns)
    source: ListedSource
    if image is None:
        _require_no_images(search, table)
        source = _list_records(table, None)
    elif boxes is not None:
        source = list_objects(table, image, boxes)
    else:
        _require_no_boxes(table)
        source = _list_records(table, image)
    if image is not None:
        source.left_out = _images_beside(path, search, source.record_files())
    # The table itself, unless `unpack` writes some images elsewhere than it names them.
    names = (name for files in source.record_files() for name in files.names)
    if not any(name[:1] == "/" or ".." in name or ":" in name for name in names):
        source.attached = _table_alone(path)
    return source


def _table_alone(path: str) -> FileList:
    return list_files(os.path.dirname(os.path.abspath(path)), [os.path.basename(path)])


def _list_records(table: Table, image: TableColumn | None) -> ListedSource:
    """List the rows of a table, each with its image, if rows have one, its label and further fields."""
    label, warnings = _label_of(table, has_images=image is not None)
    is_unsaid = not table.has_header and table.path.lower().endswith(TEXT_SUFFIXES)
    most = {"most_single": _MOST_SINGLE} if is_unsaid else {}
    labels = None if label is None else label.to_labels(**most)
    names = {} if image is None else {image: "image"}
    taken = {*names.values(), *([] if labels is None else [LABEL])}
    fields: list[TableField] = []
    paths: dict[str, TableField] = {}
    # The label of an image is its first field.
    for column in sorted(table.columns, key=lambda each: image is not None and each is not label):
        if column is image:
            continue
        if column is label and labels is not None:
            names[column] = LABEL
            fields.append(labels)
            continue
        names[column] = name = free_field_name(column.name, taken)
        if name != column.name:
            warnings.append(f"{table.path}: column {column.name!r} is stored as the field {name!r}")
        fields.append(column.to_field(name))
        if column.kind == "path":
            path_field = Field(free_field_name(f"{name}_path", taken), "text", internal=True)
            paths[name] = TableField(path_field, column.file_names(), "")
    if not fields:
        unlabelled = np.full(len(table.columns[0].cells), NO_LABEL, np.int64)
        fields.append(TableField(Field.label(), unlabelled, f"none: {NO_LABEL} for every image"))
    meanings = {each.field.name: each.meaning for each in fields}
    if image is not None:
        meanings = {"image": f"{image.naming or 'paths of the images'}, {image.origin}", **meanings}
    stored = [*fields, *paths.values()]
    make: partial[FileSource] | partial[RowSource]
    if image is None:
        make = partial(RowSource, files=_table_alone(table.path), has_images=False)
    else:
        make = partial(FileSource, files=image.to_files(), table=table.path)
    return make(
        kind="table",
        name=table.path,
        classes=() if labels is None else labels.classes,
        fields=tuple(each.field for each in stored),
        warnings=tuple(warnings),
        values={each.field.name: each.values for each in stored},
        columns=meanings,
        details={
            "table": os.path.basename(table.path),
            "header": table.header,
            "columns": [names[column] for column in table.columns],
            "paths": {name: each.field.name for name, each in paths.items()},
        },
    )


def _label_of(table: Table, *, has_images: bool) -> tuple[TableColumn | None, list[str]]:
    """Return the column of labels, only one named so if there are no images, and notes; set its kind."""
    path, given = table.path, table.given
    others = [column for column in table.columns if column.kind != "path"]
    # A column without a name among others with one is pandas' index.
    named = [column for column, name in zip(table.columns, table.header, strict=True) if name.strip()]
    free = [column for column in named or table.columns if column.kind is None]
    chosen = [column for column in others if column.kind == LABEL]
    chosen = chosen or [column for column in others if column.name.lower() == LABEL][:1]
    if not chosen and has_images:
        only = [column for column in free if not column.is_of_texts] if len(free) == 1 else []
        usual = [column for column in free if column.plain_name in LABEL_HEADERS]
        chosen = only or (usual if len(usual) == 1 else [])
    notes = [] if has_images else [f"{path}: no column names images: its rows are records without images"]
    if chosen:
        [label] = chosen
        if label.kind in (None, LABEL):
            label.kind = given.get(LABEL, label.kind)
        return (None if label.kind == "path" else label), notes
    if LABEL in given and LABEL not in [column.name for column in table.columns]:
        got = ", ".join(column.name for column in table.columns)
        step = "name the column, as in --column breed=label"
        must = "have one column left for the labels" if has_images else "have a column 'label'"
        raise OptionError(f"{path}: must {must}, got {got}: {step}")
    if len(free) > 1 and has_images:
        step = "--column NAME=label (from Python columns={'NAME': 'label'}) takes one"
        notes = [f"{path}: no column is certain to hold labels, so all are fields: {step}"]
    return None, notes


@dataclass(eq=False, kw_only=True)
class RowSource(ListedSource):
    """A `Source` of the rows of a table without images."""

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def read(self, index: int) -> SourceRecord:
        """Read one row."""
        return SourceRecord(self.key(index), None, self.listed_values(index))


def _require_no_boxes(table: Table) -> None:
    """Raise SourceError if columns without headers and kinds hold numbers that may be boxes."""
    free = [] if table.has_header else [column for column in table.columns if column.kind is None]
    kinds: dict[str, str] = {}
    for column in free:
        filled = [*filter(None, column.cells)]
        numbers = numbers_in(filled) if filled else None
        if numbers is not None:
            kinds[column.name] = "int" if numbers.dtype == np.int64 and not column.has_empty else "float"
    if len(kinds) >= _BOX_NUMBERS:
        others = [column.name for column in free if column.name not in kinds]
        kinds |= dict.fromkeys(others if len(others) == 1 else (), LABEL)
        options = " ".join(f"--column {name}={kind}" for name, kind in kinds.items())
        step = (
            f"for boxes, add one, delimited as the rows are, such as {OBJECT_HEADER} in the order of the "
            f"columns; for numbers, pack with {options}"
        )
        raise malformed(table.path, "begin with a header, as its numbers may be boxes", "none", step)


def _require_no_images(search: ImageSearch, table: Table) -> None:
    """Raise SourceError unless a table has a header, and no column that may name the images of the records.

    The first row holds names if a row of data would not hold them.
    """
    if table.path.lower().endswith(TEXT_SUFFIXES):
        must = "be a table whose first column names images"
        raise malformed(table.path, must, repr(" ".join(table.header)), WRITE_TABLE)
    for column in table.columns:
        if column.kind is None and (found := _first_name(search, column)):
            row, why = found
            got = f"{column.cells[row - 1]!r}, {why}"
            options = column.options(path="images of the records", text="records without images")
            raise column.error(row, "hold names of images, or certainly none", got, f"pack with {options}")
    for name, column in zip(table.header, table.columns, strict=True):
        if not name.strip() or numbers_in([name]) is not None or name in column.cells:
            must = "begin with a header that names its columns, as records without images are stored by name"
            step = "add one, or name the column of the images 'path'"
            raise malformed(table.path, must, repr(name) if name else "none", step)


def _first_name(search: ImageSearch, column: TableColumn) -> tuple[int, str] | None:
    """Return the first row, from 1, whose cell may name an image, and why."""
    filled = [(row, cell) for row, cell in enumerate(column.cells, 1) if cell]
    if not filled:
        return None
    first = filled[0][0]
    for row, cell in filled:
        if is_image(cell):
            return row, "which ends like an image's name"
    if all(
        ("/" in cell or "\\" in cell) and "://" not in cell and not any(map(str.isspace, cell))
        for _, cell in filled
    ):
        return first, "which looks like a path"
    if row := next((row for row, cell in filled if search.has_stem(cell)), 0):
        return row, "the name of an image file below the table's folder"
    if search.may_name_images(column):
        return first, "which names none of the images below the table's folder"
    return None


def _images_beside(path: str, search: ImageSearch, lists: Iterable[FileList]) -> tuple[LeftOut, ...]:
    """Return the images below a table's folder that no row names; beside a split's, those of that split.

    Those that another table in its folder names, such as test.csv, need no attention.
    """
    named = set(map(plain_path, {name for files in lists for name in files.names} - {""}))
    inside = {name.rpartition("/")[0] for name in named if name[:1] != "/" and name[:3] != "../"}
    if not inside:
        return ()
    splits = splits_in(stem_of(path))
    places = inside | {each.path for each in search.folders if not splits or splits & splits_in(each.path)}
    listing = search.listing
    images = (image for place in sorted(places) for image in map(listing[place].join, listing[place].images))
    unnamed = [image for image in images if image not in named]
    elsewhere = dict(_named_elsewhere(os.path.abspath(path), search, listing)) if unnamed else {}
    left_out = LeftOutFiles()
    for image in unnamed:
        table = elsewhere.get(image)
        reason = _UNNAMED if table is None else f"an image of {table}"
        left_out.add(image, reason, is_clutter=table is not None)
    return left_out.finish()


def _named_elsewhere(path: str, search: ImageSearch, listing: Listing) -> Iterator[tuple[str, str]]:
    """Yield the images that the other tables of the folder name, each with the table's name."""
    for name in listing.top.others_with(*TABLE_SUFFIXES):
        other = os.path.join(search.folder, name)
        if other == path:
            continue
        with contextlib.suppress(FastloadError):  # it is not the table that is packed
            if (image := search.find(read_table(other, search, {}).columns)) is not None:
                yield from ((plain_path(file), name) for file in image.to_files().names)
