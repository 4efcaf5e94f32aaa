"""Fields for the columns of Arrow's schemas, with the features that `datasets` stores there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fastload.errors import SourceError
from fastload.shards.schema import DTYPES, Field
from fastload.sources._columns import free_field_name
from fastload.sources.arrow import ArrowFiles

_IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png")
_CATEGORIES = ("category", "category_id", "categories", "label", "labels")
_BASES = {"bool": "bool", "halffloat": "float16", "float": "float32", "double": "float64"} | {
    "string": "text",
    "binary": "bytes",
}


class ArrowColumns:
    """The fields made of the columns, `roles`, the field of each column or part of a struct, and `paths`.

    The latter are the fields that hold the paths of images.
    """

    def __init__(self, rows: ArrowFiles) -> None:
        self._rows = rows
        self._where = rows.files.path(0)
        self._features = _features(rows.schema, self._where)
        self._taken = {"image", "shard"}
        self.classes: tuple[str, ...] = ()
        self.fields: list[Field] = []
        self.roles: dict[tuple[str, ...], str] = {}
        self.paths: dict[str, str] = {}
        images = [each.name for each in rows.schema if self._is_image(each)]
        # The image is the column named like one, else the first.
        for name in sorted(images, key=lambda name: name not in _IMAGE_NAMES):
            self._add_image(name)
        for each in rows.schema:
            if each.name not in images:
                leaves = [_Leaf((each.name, *path), *form) for path, form in _leaves(each.type)]
                self._add(each.name, leaves)

    def _is_image(self, column: Any) -> bool:
        feature = self._features.get(column.name)
        kind = feature.get("_type") if isinstance(feature, dict) else None
        is_file = str(column.type) in ("struct<bytes: binary, path: string>", "binary")
        return is_file and (kind == "Image" or (kind is None and column.name in _IMAGE_NAMES))

    def _add_image(self, name: str) -> None:
        target = "image" if not self.roles else free_field_name(name, self._taken)
        if target != "image":
            self.fields.append(Field(target, "image", encoding="keep"))
        self.paths[target] = free_field_name(f"{target}_path", self._taken)
        self.fields.append(Field(self.paths[target], "text", internal=True))
        self.roles[name,] = target

    def _add(self, column: str, leaves: Sequence[_Leaf]) -> None:
        parts = {leaf.path[-1]: self._measured(leaf) for leaf in leaves}
        category = next((name for name in _CATEGORIES if name in parts), "")
        is_objects = (
            len(parts) == len(leaves) > 1
            and all(len(leaf.path) == 2 and leaf.dims[:1] == (None,) for leaf in parts.values())
            and "bbox" in parts
            and parts["bbox"].dims == (None, 4)
            and parts["bbox"].base in DTYPES
            and bool(category)
            and parts[category].dims == (None,)
            and parts[category].base.startswith(("int", "uint"))
            and not {"boxes", "labels"} & self._taken
        )
        for leaf in leaves:
            name = leaf.path[-1] if is_objects else "_".join(leaf.path)
            names = _class_names(self._features, leaf.path)
            if is_objects and leaf.path[-1] == "bbox":
                self._take(leaf, Field.boxes("xywh"))
            elif is_objects and leaf.path[-1] == category:
                self._take(leaf, Field.labels(), names)
            elif names and leaf.dims == () and "label" not in self._taken:
                self._take(leaf, Field.label(), names)
            elif name == "label" and leaf.dims == () and leaf.base.startswith("int"):
                self._take(leaf, Field.label())
            else:
                free = free_field_name(name, self._taken)
                self._take(leaf, self._field(free, self._measured(leaf), is_objects))

    def _take(self, leaf: _Leaf, described: Field, names: Sequence[str] = ()) -> None:
        self._taken.add(described.name)
        self.fields.append(described)
        self.roles[leaf.path] = described.name
        # The names of the objects' classes go before those of images: `labels` count in them.
        if names and (not self.classes or described.name == "labels"):
            self.classes = tuple(names)

    def _field(self, name: str, leaf: _Leaf, per_object: bool) -> Field:
        base, dims = leaf.base, leaf.dims
        if not dims and base in ("text", "bytes"):
            return Field(name, "text" if base == "text" else "bytes")
        if base == "text" and len(dims) == 1:
            return Field(name, "texts", per_object=per_object)
        if base in DTYPES and None not in dims[1:]:
            sides = tuple(side for side in dims[1:] if side is not None)
            if not dims:
                return Field(name, "scalar", base)
            if dims[0] is None and 0 not in sides:
                return Field(name, "ragged", base, sides, per_object=per_object)
            if dims[0] is not None:
                return Field(name, "vector", base, (dims[0], *sides))
        raise SourceError(
            f"{self._where}: column {'.'.join(leaf.path)} must hold numbers, text, bytes, or lists of "
            f"numbers of one shape, got {self._rows.schema.field(leaf.path[0]).type}: remove it first "
            f"(dataset.remove_columns({leaf.path[0]!r}))"
        )

    def _measured(self, leaf: _Leaf) -> _Leaf:
        """Return the leaf with the lengths of inner lists that are equal in all rows."""
        if None not in leaf.dims[1:] or leaf.base not in DTYPES:
            return leaf
        levels: list[set[int]] = [set() for _ in leaf.dims]
        for column in self._rows.columns(leaf.path[0]):
            for value in column.to_pylist():
                _collect_lengths(dig(value, leaf.path[1:]), levels)
        dims = [next(iter(found)) if len(found) == 1 else None for found in levels]
        return leaf._replace(dims=(leaf.dims[0], *dims[1:]))


class _Leaf(NamedTuple):
    """A column, or a part of a struct: its path, the length of each level of lists, and its elements' type.

    The length is None where it varies; the type is a dtype, `text`, `bytes`, or Arrow's name of another one.
    """

    path: tuple[str, ...]
    dims: tuple[int | None, ...]
    base: str


def _leaves(kind: Any) -> Iterator[tuple[tuple[str, ...], tuple[tuple[int | None, ...], str]]]:
    """Yield the path of each part of a type that is no struct, its lists' lengths and its elements' type."""
    name = str(kind)
    if hasattr(kind, "storage_type"):
        yield from _leaves(kind.storage_type)
    elif name.startswith("struct<"):
        for part in (kind.field(at) for at in range(kind.num_fields)):
            for path, form in _leaves(part.type):
                yield (part.name, *path), form
    elif name.startswith(("list<", "large_list<", "fixed_size_list<")):
        length = kind.list_size if name.startswith("fixed") else None
        for path, (dims, base) in _leaves(kind.value_type):
            yield path, ((length, *dims), base)
    else:
        yield (), ((), _BASES.get(name.removeprefix("large_"), name))


def _features(schema: Any, where: str) -> dict[str, Any]:
    """Return the features that `datasets` stored in a schema; none if another program wrote it."""
    stored = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(stored)["info"]["features"] if stored else {}
        return dict(features)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SourceError(
            f"{where}: must state its features as JSON under 'huggingface', got: {error}: write it again"
        ) from error


def _class_names(features: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """Return the names of the ClassLabel at a path, through lists; nothing if there is none."""
    node: Any = features
    for part in (*path, None):
        while isinstance(node, (list, dict)):
            if isinstance(node, list):  # an older release's list
                node = node[0] if node else None
            elif "feature" in node and "_type" in node:
                node = node["feature"]
            else:
                break
        if part is not None:
            node = node.get(part) if isinstance(node, dict) else None
    names = node.get("names") if isinstance(node, dict) and node.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) else []


def dig(value: Any, path: Sequence[str]) -> Any:
    """Return the part of a row's value at a path; of a list of structs, the list of that part."""
    for part in path:
        value = [each[part] for each in value] if isinstance(value, list) else value[part]
    return value


def _collect_lengths(value: Any, levels: Sequence[set[int]]) -> None:
    if isinstance(value, list) and levels:
        levels[0].add(len(value))
        for each in value:
            _collect_lengths(each, levels[1:])
