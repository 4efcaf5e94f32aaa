"""Arrow and Parquet files that share a schema, read by row, and the fields for their columns.

The fields follow from the schema and the features that `datasets` stores in it. pyarrow is optional.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastload.errors import LibraryMissingError
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.schema import DTYPES, Field
from fastload.sources.files import FileList
from fastload.sources.malformed import explaining, malformed
from fastload.sources.table.columns import free_field_name

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile


# Older releases unpickle data from a file's metadata (CVE-2023-47248).
_OLDEST = (14, 0, 1)

_IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png")
_IMAGE_TYPES = ("struct<bytes: binary, path: string>", "binary")
_CATEGORIES = ("category", "category_id", "categories", "label", "labels")

_BASES = {
    **{"bool": "bool", "halffloat": "float16", "float": "float32", "double": "float64"},
    **{"string": "text", "binary": "bytes"},
}

Path = tuple[str, ...]
"""The path of a column, or of a part of its structs."""


def import_arrow(path: str) -> ModuleType:
    """Return the module pyarrow; raise LibraryMissingError if it is missing or too old to be safe."""
    try:
        arrow = import_module("pyarrow")
    except ImportError as error:
        raise LibraryMissingError(
            f"{path}: Arrow and Parquet files need pyarrow, which is not installed: pip install pyarrow"
        ) from error
    if tuple(int(part) for part in arrow.__version__.split(".")[:3] if part.isdigit()) < _OLDEST:
        raise LibraryMissingError(
            f"{path}: must be read by pyarrow {'.'.join(map(str, _OLDEST))} or newer, which runs no code of "
            f"files, got {arrow.__version__}: pip install --upgrade pyarrow"
        )
    return arrow


class ArrowFiles:
    """Rows of .arrow and .parquet files, which are opened again in each process that reads them."""

    def __init__(self, files: FileList) -> None:
        self.files = files
        self._arrow = import_arrow(files.path(0))
        self._open: dict[int, pyarrow.Table | ParquetFile] = {}
        self._group: tuple[int, int] | None = None  # the file and row group that `_rows` belong to
        self._rows: pyarrow.Table = None
        self.schema: pyarrow.Schema = None
        counts = [self._check(number) for number in range(len(files))]
        self.ends = list(accumulate(counts))

    def __getstate__(self) -> dict[str, object]:
        state = {**self.__dict__, "_open": {}, "_group": None, "_rows": None, "_arrow": None}
        return state | {"schema": self.schema.serialize().to_pybytes()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._arrow = import_arrow(self.files.path(0))
        self.schema = self._arrow.ipc.read_schema(self._arrow.py_buffer(state["schema"]))

    def place(self, index: int) -> tuple[int, int]:
        """Return the number of the file that holds a row, and the row's index in it."""
        number = bisect.bisect_right(self.ends, index)
        return number, index - (self.ends[number - 1] if number else 0)

    def row(self, index: int) -> dict[str, object]:
        """Return a row as Python values by column; raise SourceError, naming file and row, on damage."""
        number, row = self.place(index)
        with self._explaining(number, row):
            if not self._is_parquet(number):
                table = self._opened(number)
            else:
                file, group = self._opened(number), 0
                while row >= file.metadata.row_group(group).num_rows:
                    row -= file.metadata.row_group(group).num_rows
                    group += 1
                if self._group != (number, group):
                    self._rows, self._group = file.read_row_group(group, use_threads=False), (number, group)
                table = self._rows
            return {name: table.column(at)[row].as_py() for at, name in enumerate(self.schema.names)}

    def columns(self, name: str) -> Iterator[pyarrow.ChunkedArray]:
        """Yield the column of this name from each file."""
        for number in range(len(self.files)):
            with self._explaining(number):
                if self._is_parquet(number):
                    yield self._opened(number).read([name], use_threads=False).column(0)
                else:
                    yield self._opened(number).column(name)

    def _check(self, number: int) -> int:
        """Return the number of a file's rows; raise SourceError if it is damaged or has another schema."""
        path = self.files.path(number)
        with self._explaining(number):
            if self._is_parquet(number):
                schema, rows = self._opened(number).schema_arrow, self._opened(number).metadata.num_rows
            else:
                table = self._opened(number)
                table.validate(full=True)  # offsets out of bounds would crash the process
                schema, rows = table.schema, table.num_rows
            if number == 0:
                self.schema = schema
        if not schema.equals(self.schema):
            must = f"have the columns of {self.files.path(0)}, {self.schema.names}"
            raise malformed(path, must, f"{schema.names} or other types", "pack such files apart")
        return int(rows)

    def _is_parquet(self, number: int) -> bool:
        return self.files.names[number].lower().endswith(".parquet")

    def _opened(self, number: int) -> ParquetFile | pyarrow.Table:
        """Return a Parquet file, or an .arrow file in stream (as from `datasets`) or file format."""
        if number not in self._open:
            path = self.files.path(number)
            if self._is_parquet(number):
                self._open[number] = import_module("pyarrow.parquet").ParquetFile(path, memory_map=True)
            else:
                mapped = self._arrow.memory_map(path)
                is_file = mapped.read(6) == b"ARROW1"
                mapped.seek(0)
                read = self._arrow.ipc.open_file if is_file else self._arrow.ipc.open_stream
                self._open[number] = read(mapped).read_all()
        return self._open[number]

    def _explaining(self, number: int, row: int | None = None) -> AbstractContextManager[None]:
        where = self.files.path(number) + ("" if row is None else f", row {row}")
        errors = (self._arrow.ArrowException, OSError)
        return explaining(errors, where, "be complete Arrow or Parquet data", "download or write it again")


class _Leaf(NamedTuple):
    """A column, or a part of a struct, with the length of each level of lists and the type of their elements.

    A length is None if the schema does not state it. The type is a dtype, `text`, `bytes`, or Arrow's name of
    any other type.
    """

    path: Path
    lengths: tuple[int | None, ...]
    base: str


class ArrowColumns:
    """Fields made from the columns of an Arrow schema.

    `roles` maps each column, or part of a struct, to its field; `paths` maps each image field to the field
    with the paths of its images.
    """

    def __init__(self, rows: ArrowFiles) -> None:
        self._rows = rows
        self._features = _features(rows.schema, rows.files.path(0))
        self._taken = {"image", "shard"}
        self.classes: tuple[str, ...] = ()
        self.fields: list[Field] = []
        self.roles: dict[Path, str] = {}
        self.paths: dict[str, str] = {}
        images = [column.name for column in rows.schema if self._is_image(column)]
        # The image is the first column that is named like one, else the first image column.
        for name in sorted(images, key=lambda name: name not in _IMAGE_NAMES):
            target = "image"
            if self.roles:
                target = free_field_name(name, self._taken)
                self.fields.append(Field(target, "image", encoding="keep"))
            self.paths[target] = free_field_name(f"{target}_path", self._taken)
            self.fields.append(Field(self.paths[target], "text", internal=True))
            self.roles[name,] = target
        for column in rows.schema:
            if column.name not in images:
                self._add(list(_leaves((column.name,), (), column.type)))

    def _is_image(self, column: pyarrow.Field) -> bool:
        feature = self._features.get(column.name)
        kind = feature.get("_type") if isinstance(feature, dict) else None
        if str(column.type) not in _IMAGE_TYPES or kind not in ("Image", "Value", None):
            return False
        if kind == "Image" or (not kind and column.name in _IMAGE_NAMES):
            return True
        first = next((value.as_py() for values in self._rows.columns(column.name) for value in values), None)
        return isinstance(first, bytes) and format_of(first[:HEAD_BYTES]) is not None

    def _add(self, leaves: Sequence[_Leaf]) -> None:
        category = self._category_of_objects(leaves)
        for leaf in leaves:
            part, names = leaf.path[-1], _class_names(self._features, leaf.path)
            is_integer = not leaf.lengths and leaf.base.startswith("int")
            if category and part == "bbox":
                described = Field.boxes("xywh")
            elif category and part == category:
                described = Field.labels()
            elif is_integer and "label" not in self._taken and (names or leaf.path == ("label",)):
                described = Field.label()
            else:
                name = free_field_name(part if category else "_".join(leaf.path), self._taken)
                described = self._field(name, leaf, is_of_object=bool(category))
            self._taken.add(described.name)
            self.fields.append(described)
            self.roles[leaf.path] = described.name
            # Class names of objects take precedence over those of images, because `labels` refer to them.
            if described == Field.labels() or (described == Field.label() and not self.classes):
                self.classes = tuple(names) or self.classes

    def _category_of_objects(self, leaves: Sequence[_Leaf]) -> str:
        """Return the part with the classes of objects that also have a part `bbox`; "" if there is none."""
        parts = {leaf.path[-1]: leaf for leaf in leaves}
        category = next((name for name in _CATEGORIES if name in parts), "")
        are_lists = all(len(leaf.path) == 2 and leaf.lengths[:1] == (None,) for leaf in leaves)
        if not self.paths:  # there is no image that objects could belong to
            return ""
        if not category or "bbox" not in parts or not are_lists or {"boxes", "labels"} & self._taken:
            return ""
        is_box = parts["bbox"].base in DTYPES and self._sides(parts["bbox"]) == (4,)
        is_class = parts[category].lengths == (None,) and parts[category].base.startswith(("int", "uint"))
        return category if is_box and is_class else ""

    def _field(self, name: str, leaf: _Leaf, *, is_of_object: bool) -> Field:
        base, lengths = leaf.base, leaf.lengths
        if base in ("text", "bytes") and not lengths:
            return Field(name, "text" if base == "text" else "bytes")
        if base == "text" and len(lengths) == 1:
            return Field(name, "texts", per_object=is_of_object)
        if base in DTYPES and not lengths:
            return Field(name, "scalar", base)
        if base in DTYPES and (sides := self._sides(leaf)) is not None and 0 not in sides:
            if lengths[0] is None:
                return Field(name, "ragged", base, sides, per_object=is_of_object)
            return Field(name, "vector", base, (lengths[0], *sides))
        column = leaf.path[0]
        raise malformed(
            f"{self._rows.files.path(0)}, column {'.'.join(leaf.path)}",
            "hold numbers, text, bytes, or lists of numbers of one shape",
            self._rows.schema.field(column).type,
            f"remove it first (dataset.remove_columns({column!r}))",
        )

    def _sides(self, leaf: _Leaf) -> tuple[int, ...] | None:
        """Return the shape of a list's elements, by the first nonempty list if the schema does not state it.

        Return None if that list has inner lists of different lengths; other rows are checked when read.
        """
        sides = tuple(length for length in leaf.lengths[1:] if length is not None)
        if len(sides) < len(leaf.lengths) - 1:
            column, *inner = leaf.path
            items = (dig(value.as_py(), inner) for values in self._rows.columns(column) for value in values)
            try:
                sides = np.shape(next(filter(None, items), []))[1:]
            except ValueError:
                return None
        return sides if len(sides) == len(leaf.lengths) - 1 else None


def _leaves(path: Path, lengths: tuple[int | None, ...], kind: pyarrow.DataType) -> Iterator[_Leaf]:
    """Yield the parts of a type that are not structs."""
    name = str(kind)
    if hasattr(kind, "storage_type"):
        yield from _leaves(path, lengths, kind.storage_type)
    elif name.startswith("struct<"):
        for part in (kind.field(at) for at in range(kind.num_fields)):
            yield from _leaves((*path, part.name), lengths, part.type)
    elif name.startswith(("list<", "large_list<", "fixed_size_list<")):
        length = kind.list_size if name.startswith("fixed") else None
        yield from _leaves(path, (*lengths, length), kind.value_type)
    else:
        yield _Leaf(path, lengths, _BASES.get(name.removeprefix("large_"), name))


def _features(schema: pyarrow.Schema, where: str) -> dict[str, object]:
    """Return the features that `datasets` stored in a schema; none if another program wrote it."""
    stored = (schema.metadata or {}).get(b"huggingface")
    errors = (ValueError, TypeError, KeyError, RecursionError)
    with explaining(errors, where, "state its features as JSON under 'huggingface'", "write it again"):
        return dict(json.loads(stored)["info"]["features"] if stored else {})


def _class_names(features: Mapping[str, object], path: Path) -> list[str]:
    """Return the names of the ClassLabel at a path, inside lists too; an empty list if there is none."""
    node: object = features
    for part in (*path, None):
        while isinstance(node, list) or (isinstance(node, dict) and {"feature", "_type"} <= {*node}):
            # Older releases of `datasets` write a list feature as a list.
            node = node["feature"] if isinstance(node, dict) else next(iter(node), None)
        if part is not None:
            node = node.get(part) if isinstance(node, dict) else None
    names = node.get("names") if isinstance(node, dict) and node.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) else []


def dig(value: Any, path: Sequence[str]) -> Any:
    """Return the part of a value at a path; for a list of structs, the list of their parts."""
    for part in path:
        value = [each[part] for each in value] if isinstance(value, list) else value[part]
    return value
