"""Sources of records: folders of images, tables, files of other programs, and datasets.

Each layout has a folder with its recogniser, reader and writer, against the contracts in protocol.py. A
source folder is walked once (listing.py), the layouts claim it (opening.py), and every file of it is
accounted for (account.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources.containers import expand_braces
from fastload.sources.dataset.source import DatasetSource, files_behind
from fastload.sources.opening import SOURCES, check_layout, open_file, open_folder
from fastload.sources.protocol import Source
from fastload.sources.table.cells import TABLE_SUFFIXES
from fastload.sources.table.columns import ColumnKind, are_class_names

__all__ = ["ColumnKind", "DatasetSource", "are_class_names", "open_source"]


def open_source(
    source: object,
    fields: Sequence[Field] | None = None,
    columns: Mapping[str, ColumnKind] | None = None,
    layout: str | None = None,
) -> dict[str, Source]:
    """Return the sources of a path or a map-style dataset by split (`train`, `val`, `test`), or all under "".

    A `Source` is returned as it is. An ImageFolder without transforms, or torch's Subset of one, is read from
    its files. `fields` describes the samples of a dataset if they cannot be inferred; `columns` gives the
    kinds of a table's columns; `layout` names the layout of a folder that can be read in two ways.
    SourceError is raised for a path that does not exist or cannot be read, for a folder of another layout
    than the one named, and for one that can be read in two ways; OptionError for options that do not apply
    to the source.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise OptionError(f"columns must map names to kinds, as {{'zip': 'text'}} does, got {columns!r}")
    check_layout(layout)
    if isinstance(source, Source):
        return {"": source}
    path = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else None
    if columns and not (path and path.lower().endswith(TABLE_SUFFIXES)):
        raise OptionError(f"columns are for a .csv or .tsv table, got them for {source!r}: leave them out")
    if path is not None:
        if fields is not None:
            raise OptionError(f"fields are for a dataset, got them for {source!r}: leave them out")
        path = os.path.expanduser(path)
        if not os.path.exists(path) and expand_braces(path) == [path]:
            raise SourceError(f"{path}: no such file or folder: check its spelling")
        if os.path.normpath(path).lower().endswith(".fl"):
            raise SourceError(
                f"{path}: must be {SOURCES}, got a packed dataset: "
                f"unpack it first with 'fastload unpack {path} FOLDER'"
            )
        return open_folder(path, layout) if os.path.isdir(path) else open_file(path, columns, layout)
    if layout is not None:
        raise OptionError(f"layout is for a folder, got it for {source!r}: leave it out")
    if not hasattr(type(source), "__len__") or not hasattr(type(source), "__getitem__"):
        raise SourceError(f"a source must be {SOURCES}, got {type(source).__name__}")
    files = files_behind(source) if fields is None else None
    return {"": files if files is not None else DatasetSource(source, fields)}
