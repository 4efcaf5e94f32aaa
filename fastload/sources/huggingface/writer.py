"""Writing of Hugging Face datasets in the form of `save_to_disk`, and of Parquet and .arrow files."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fastload.shards.record import Record
from fastload.sources.huggingface.columns import import_arrow
from fastload.sources.writing import ImageFiles, StoredRecords, drafted, safe_path

if TYPE_CHECKING:
    import pyarrow


_Path = tuple[str, ...]  # of a column, or of a part of its structs
_BATCH_ROWS = 100  # the size of a row group in the Parquet files with images that `datasets` writes


def write_arrow(records: StoredRecords, root: Path) -> list[Path]:
    """Write a dataset's files under their names below root; raise LibraryMissingError without pyarrow."""
    arrow = import_arrow(str(root))
    details = records.details
    schema = arrow.ipc.read_schema(arrow.py_buffer(base64.b64decode(details["schema"].text())))
    columns = ([part.text() for part in each.each()] for each in details["columns"].each())
    roles = {tuple(path): name for *path, name in columns}
    paths = details["paths"].texts()
    written = []
    for name, of_file in records.by_file():
        path = safe_path(root, name)
        with drafted(path) as draft, _opened(arrow, draft, path, schema) as writer:
            while batch := list(itertools.islice(of_file, _BATCH_ROWS)):
                rows = [_row(schema, roles, paths, *each) for each in batch]
                arrays = []
                for column in schema:
                    kind = getattr(column.type, "storage_type", column.type)
                    array = arrow.array([row[column.name] for row in rows], kind)
                    if kind is not column.type:
                        array = arrow.ExtensionArray.from_storage(column.type, array)
                    arrays.append(array)
                writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
        written.append(path)
    return written


def _opened(arrow: ModuleType, draft: Path, path: Path, schema: pyarrow.Schema) -> Any:
    if path.suffix.lower() != ".parquet":
        return arrow.ipc.new_stream(str(draft), schema)
    from pyarrow import parquet

    return parquet.ParquetWriter(draft, schema)


def _row(
    schema: pyarrow.Schema,
    roles: Mapping[_Path, str],
    paths: Mapping[str, str],
    record: Record,
    files: ImageFiles,
) -> dict[str, object]:
    """Return the row of a record, with its structs reassembled."""
    values: dict[_Path, object] = {}
    for path, name in roles.items():
        if name not in files:
            value = record[name]
            values[path] = value.tolist() if isinstance(value, np.ndarray) else value
            continue
        values[path] = files[name][0]
        if str(schema.field(path[0]).type) != "binary":
            values[path] = {"bytes": files[name][0], "path": record[paths[name]] or None}
    return {column.name: _struct(column.type, (column.name,), values) for column in schema}


def _struct(kind: pyarrow.DataType, path: _Path, values: Mapping[_Path, object]) -> object:
    """Return a struct, or a list of structs, from the values of its parts."""
    if path in values:
        return values[path]
    is_list = not str(kind).startswith("struct<")
    struct = kind.value_type if is_list else kind
    names = [struct.field(at).name for at in range(struct.num_fields)]
    parts = {name: _struct(struct.field(name).type, (*path, name), values) for name in names}
    if not is_list:
        return parts
    return [dict(zip(parts, each, strict=True)) for each in zip(*parts.values(), strict=True)]
