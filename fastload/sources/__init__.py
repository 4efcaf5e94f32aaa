"""Where records come from: folders of images, tables, datasets; `open_source` tells them apart."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources.columns import ColumnKind
from fastload.sources.dataset import DatasetSource, folder_behind
from fastload.sources.files import FileSource
from fastload.sources.folder import list_folder
from fastload.sources.foreign import explain_file
from fastload.sources.names import NameTable
from fastload.sources.protocol import Source, SourceRecord
from fastload.sources.table import TABLE_SUFFIXES, list_table

__all__ = [
    "ColumnKind",
    "DatasetSource",
    "FileSource",
    "NameTable",
    "Source",
    "SourceRecord",
    "open_source",
]

_TAKEN = (
    "a folder of class folders, a folder of images, a .csv or .tsv table, "
    "or a dataset with __len__ and __getitem__"
)


def open_source(
    source: Any,
    fields: Sequence[Field] | None = None,
    columns: Mapping[str, ColumnKind] | None = None,
    *,
    skips_unlistable: bool = False,
) -> dict[str, Source]:
    """Lists whatever holds images.

    Args:
        source: A path (a folder of class folders, of images, or of splits; a `.csv` or `.tsv`
            table), or a map-style dataset. An ImageFolder without transforms, or torch's Subset of
            one, is read from its files.
        fields: For a dataset: what its samples hold beside the image, where the first sample
            does not show it.
        columns: For a table: what columns are, see `list_table`.
        skips_unlistable: For a folder: whether to go on without folders in it that cannot be listed.

    Returns:
        The sources by split (`train`, `val`, `test`), or one source under the name "".

    Raises:
        SourceError: There is nothing at the path, or nothing that can be read as a source.
        OptionError: `fields` were given for what is no dataset, or `columns` for what is no table.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise OptionError(f"columns must map names to kinds, as {{'zip': 'text'}} does, got {columns!r}")
    is_path = isinstance(source, (str, os.PathLike))
    if columns and not (is_path and os.fsdecode(source).lower().endswith(TABLE_SUFFIXES)):
        raise OptionError(
            f"columns say what a .csv or .tsv table holds, got them for {source!r}: leave them out"
        )
    if isinstance(source, (str, os.PathLike)):
        if fields is not None:
            raise OptionError(
                f"fields must describe a dataset's samples, got them for {source!r}: leave them out"
            )
        return dict(_open_path(os.path.expanduser(os.fsdecode(source)), columns, skips_unlistable))
    if not hasattr(type(source), "__len__") or not hasattr(type(source), "__getitem__"):
        raise SourceError(f"a source must be {_TAKEN}, got {type(source).__name__}")
    folder = folder_behind(source) if fields is None else None
    return {"": folder if folder is not None else DatasetSource(source, fields)}


def _open_path(
    path: str, columns: Mapping[str, ColumnKind] | None, skips_unlistable: bool
) -> dict[str, FileSource]:
    if not os.path.exists(path):
        raise SourceError(f"{path}: must exist, got no such path: check its spelling")
    if os.path.normpath(path).lower().endswith(".fl"):
        raise SourceError(
            f"{path}: must be {_TAKEN}, got a packed dataset: "
            f"unpack it first with 'fastload unpack {path} FOLDER'"
        )
    if os.path.isdir(path):
        return list_folder(path, skips_unlistable=skips_unlistable)
    if path.lower().endswith(TABLE_SUFFIXES):
        return {"": list_table(path, columns)}
    raise SourceError(f"{path}: must be {_TAKEN}, got {explain_file(path)}")
