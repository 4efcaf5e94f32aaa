"""One record of a packed dataset: its stored bytes, and the values of its fields."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence, Sized
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DamageError
from fastload.shards.checksum import StoredRow
from fastload.shards.container import ByteArray
from fastload.shards.schema import DTYPES, Field

_SHAPE = struct.Struct("<3I")


class ValueReader(NamedTuple):
    """Conversion of a field's stored bytes to its value; raises ValueError if they do not encode one.

    `convert` takes the bytes of the field's first column, then those of the `further` columns.
    """

    convert: Callable[..., object]
    further: tuple[str, ...] = ()


def value_reader(field: Field) -> ValueReader:
    """Return the reader of a field's values."""
    if field.kind in ("image", "bytes"):
        return ValueReader(bytes)
    if field.kind == "text":
        return ValueReader(_text)
    further = tuple(column.name for column in field.columns()[1:])
    if field.kind in ("polygons", "texts"):
        return ValueReader(_polygons if field.kind == "polygons" else _texts, further)
    dtype = field.columns()[0].numpy_dtype
    if field.kind == "scalar":
        # Six times as fast as a NumPy array of one element.
        unpack = struct.Struct("<" + DTYPES[field.dtype]).unpack
        return ValueReader(lambda stored: unpack(stored)[0])
    shape = field.shape if field.kind == "vector" else (-1, *field.shape)
    return ValueReader(lambda stored: np.frombuffer(stored, dtype).reshape(shape))


def stored_rows(field: Field, value: Any) -> list[bytes]:
    """Return the stored bytes of each column of a field that is not an image."""
    if field.kind == "text":
        return [value.encode("utf-8", "surrogateescape")]
    if field.kind == "bytes":
        return [value]
    if field.kind == "texts":
        parts = [text.encode("utf-8", "surrogateescape") for text in value]
        return [b"".join(parts), _ends(parts)]
    if field.kind == "polygons":
        polygons = [np.asarray(polygon, "<f8") for polygons in value for polygon in polygons]
        counts = np.fromiter(map(len, value), "<u4", len(value)).tobytes()
        return [b"".join(polygon.tobytes() for polygon in polygons), _ends(polygons), counts]
    return [np.asarray(value, field.columns()[0].numpy_dtype).tobytes()]


def _ends(parts: Sequence[Sized]) -> bytes:
    return np.fromiter(accumulate(map(len, parts)), "<u4", len(parts)).tobytes()


def _text(stored: StoredRow) -> str:
    return bytes(stored).decode("utf-8", "surrogateescape")


def _texts(stored: StoredRow, ends: StoredRow) -> list[str]:
    data = bytes(stored)
    return [_text(data[begin:end]) for begin, end in _bounds(ends, len(data))]


def _polygons(stored: StoredRow, ends: StoredRow, counts: StoredRow) -> list[list[NDArray[np.float64]]]:
    points = np.frombuffer(stored, "<f8").reshape(-1, 2)
    polygons = [points[begin:end] for begin, end in _bounds(ends, len(points))]
    counted = np.frombuffer(counts, "<u4").tolist()
    if sum(counted) != len(polygons):
        raise ValueError("each polygon must belong to an object")
    following = iter(polygons)
    return [list(islice(following, count)) for count in counted]


def _bounds(ends: StoredRow, length: int) -> list[tuple[int, int]]:
    """Return the bounds of parts that must fill the length."""
    bounds = [0, *np.frombuffer(ends, "<u4").tolist()]
    if bounds[-1] != length or any(begin > end for begin, end in pairwise(bounds)):
        raise ValueError("parts must follow each other and fill the column")
    return list(pairwise(bounds))


ValueReaders = dict[str, ValueReader]  # by field


class Rows(Protocol):
    """Rows of stored columns, such as those of a ShardReader."""

    def row(self, column: str, index: int) -> bytes | ByteArray:
        """Return the stored bytes of one record in one column, read-only."""


class Record:
    """One stored record, with its index in the dataset; its parts are read on access."""

    __slots__ = ("_row", "_shard", "_values", "index")

    def __init__(self, index: int, shard: Rows, row: int, values: ValueReaders) -> None:
        self.index = index
        self._shard = shard
        self._row = row
        self._values = values

    @property
    def key(self) -> str:
        """The path of the record's file relative to the source from which it was packed."""
        return os.fsdecode(bytes(self._shard.row("key", self._row)))

    def stored(self, column: str) -> bytes | ByteArray:
        """Return the stored bytes of one column, read-only; for an image, the encoded bytes."""
        return self._shard.row(column, self._row)

    def image_shape(self, name: str = "image") -> tuple[int, int, int]:
        """Return (height, width, channels) of an image field as stored; zeros for an unreadable image."""
        stored: Any = self._shard.row(f"{name}/shape", self._row)
        height, width, channels = _SHAPE.unpack(stored)
        return height, width, channels

    def __getitem__(self, name: str) -> Any:
        """Return the value of a field: a number, an array, a str, or bytes; for an image, its encoded bytes.

        Polygons are a list of arrays (points, 2) for each object, texts a list of str.

        Raises:
            DamageError: The stored bytes are not a valid value of the field: another program wrote them.
        """
        stored = self._shard.row(name, self._row)
        convert, further = self._values[name]
        try:
            if further:
                return convert(stored, *(self._shard.row(each, self._row) for each in further))
            return convert(stored)
        except ValueError as error:
            raise DamageError(
                f"record {self.index} (key {self.key!r}): field {name!r} has {len(stored)} bytes, not a "
                "valid value: the program that wrote the dataset did not follow the format's specification"
            ) from error
