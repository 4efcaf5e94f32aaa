"""CSV and TSV tables as sources: a column that names images, one of labels, and any others.

The images are found by evidence: see `images.py`. The first row is a header unless it names an image as the
others do. Without any image, the rows are records of their own: see `rows.py`; with columns of boxes, they
are objects: see `objects.py`.

Labels are in the column of the kind `label`, else in the column headed `label`, else in the only column
without a given kind that remains, or the only one of them that is headed `class`, `target` or similar. The
cells of that column determine the labels:

    all integers        labels as they are; the classes are "0", "1", … up to the largest
    floats              no labels: the column becomes a field, as further columns do
    anything else       class names: the labels number them in sorted order

Every further column becomes a field named by its header (`col3` without one), of the given kind. By default,
it holds images if its cells name some (a mask, a depth map), else int64, float64 or text, by the rules of
`columns.py`. Rows are counted from 1, without the header and blank lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fastload.errors import OptionError
from fastload.shards.schema import Field
from fastload.sources.files import NO_LABEL, FileList, FileSource, ListedSource, list_files
from fastload.sources.malformed import malformed
from fastload.sources.protocol import Source
from fastload.sources.table.beside import images_beside
from fastload.sources.table.cells import TEXT_SUFFIXES, WRITE_TABLE, read_table
from fastload.sources.table.columns import (
    LABEL,
    LABEL_HEADERS,
    TEXT_HEADERS,
    ColumnKind,
    TableColumn,
    TableField,
    free_field_name,
    numbers_in,
)
from fastload.sources.table.images import ImageSearch
from fastload.sources.table.objects import OBJECT_HEADER, find_boxes, list_objects
from fastload.sources.table.rows import list_rows, require_no_images

_BOX_NUMBERS = 4  # in a table without a header
_VIA_HEADER = "region_shape_attributes"


def list_table(path: str, columns: Mapping[str, ColumnKind] | None = None) -> Source:
    """List the rows of a table, one record each, with the image that it names; repeated rows stay repeated.

    With columns of boxes, each row is an object, and each image is a record: see `objects.py`.

    `columns` gives the kinds of columns by their headers (`col3` without one): `label` is for the column that
    labels are taken from, which is also named by `label` itself. `text` makes labels class names; `float`
    makes empty cells NaN; `path` is for names of images. SourceError, naming the row, is raised for a
    malformed table, and OptionError for invalid `columns`. A missing image is reported when its record is
    read.
    """
    given = columns or {}
    search = ImageSearch(path)
    header, table = read_table(search, given)
    if _VIA_HEADER in header:
        got = f"regions of VIA in the column {_VIA_HEADER!r}"
        raise malformed(path, "hold boxes in columns", got, "export them as COCO from VIA, and pack that")
    boxes = find_boxes([column.name for column in table], given) if any(header) else None
    image = search.find(table)
    if image is None and path.lower().endswith(TEXT_SUFFIXES):
        must = "be a table whose first column names images"
        raise malformed(path, must, repr(" ".join(header or [])), WRITE_TABLE)
    source: ListedSource
    if image is None:
        require_no_images(search, table)
        source = list_rows(path, header, table, given)
    else:
        if boxes is None:
            source = _list_images(path, header, table, image, given)
        else:
            if boxes.label >= 0 and LABEL in given:
                table[boxes.label].kind = given[LABEL]
            source = list_objects(path, header, table, image, boxes)
        source.left_out = images_beside(search, source.record_files())
    source.attached = _attached(search, source.record_files())
    return source


def _attached(search: ImageSearch, lists: Iterator[FileList]) -> FileList | None:
    """Return the table itself; None if `unpack` writes some images elsewhere than it names them."""
    if any(name[:1] == "/" or ".." in name or ":" in name for files in lists for name in files.names):
        return None
    return list_files(search.folder, [os.path.basename(search.table)])


def _list_images(
    path: str,
    header: Sequence[str],
    table: Sequence[TableColumn],
    image: TableColumn,
    given: Mapping[str, ColumnKind],
) -> FileSource:
    """List the rows of a table, each an image with its label and further fields."""
    if not any(header):
        _require_no_boxes(path, table)
    label, notes = _label_of(path, header, table, given)
    files = image.to_files()
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
    warnings = [*notes]
    for column in further:
        name = free_field_name(column.name, taken)
        if name != column.name:
            warnings.append(f"{path}: column {column.name!r} is stored as the field {name!r}")
        fields.append(column.to_field(name))
        names_of[column] = name
        if column.kind == "path":
            path_field = Field(free_field_name(f"{name}_path", taken), "text", internal=True)
            paths[name] = TableField(path_field, column.to_files().names, "")
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
            "image": f"{image.naming or 'paths of the images'}, {image.origin}",
            **{each.field.name: each.meaning for each in fields},
        },
        details={
            "table": os.path.basename(path),
            "header": header,
            "columns": [names_of[column] for column in table],
            "paths": {name: each.field.name for name, each in paths.items()},
        },
    )


def _require_no_boxes(path: str, table: Sequence[TableColumn]) -> None:
    """Raise SourceError if the columns of a table without a header may be boxes, by their numbers."""
    filled = ([*filter(None, column.cells)] for column in table if column.kind is None)
    if sum(bool(cells) and numbers_in(cells) is not None for cells in filled) >= _BOX_NUMBERS:
        step = (
            f"add one, for boxes {OBJECT_HEADER} or similar, or give the kinds of columns (--column col2=int)"
        )
        raise malformed(path, "begin with a header, as its numbers may be boxes", "none", step)


def _label_of(
    path: str, header: Sequence[str], table: Sequence[TableColumn], given: Mapping[str, ColumnKind]
) -> tuple[TableColumn | None, list[str]]:
    """Return the column of labels, and a note if several could be it; set its kind."""
    others = [column for column in table if column.kind != "path"]
    # A column without a name among others with one is pandas' index.
    named = [column for column, name in zip(table, header, strict=True) if name.strip() or not any(header)]
    free = [column for column in others if column.kind is None and column in named]
    usual = [column for column in free if column.plain_name in LABEL_HEADERS]
    chosen = [column for column in others if column.kind == LABEL]
    chosen = chosen or [column for column in others if column.name.lower() == LABEL][:1]
    if not chosen:
        only = [column for column in free if column.plain_name not in TEXT_HEADERS] if len(free) == 1 else []
        chosen = only or (usual if len(usual) == 1 else [])
    if chosen:
        [label] = chosen
        if LABEL in given and (label.kind in (None, LABEL)):
            label.kind = given[LABEL]
        return (None if label.kind == "path" else label), []
    if LABEL in given and LABEL not in [column.name for column in table]:
        got = ", ".join(column.name for column in table)
        step = "name the column, as in --column breed=label"
        raise OptionError(f"{path}: must have one column left for the labels, got {got}: {step}")
    if len(free) > 1:
        step = "--column NAME=label (from Python columns={'NAME': 'label'}) takes one"
        return None, [f"{path}: no column is certain to hold labels, so all are fields: {step}"]
    return None, []
