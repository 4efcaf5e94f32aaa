"""One stored record, and the conversion of its bytes into values."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fastload.errors import DamageError
from fastload.shards.container import ByteArray, ShardReader
from fastload.shards.schema import Field

_SHAPE = struct.Struct("<3I")
_STRUCT_CODES = {
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d", "bool": "?",
}  # fmt: skip

ValueReaders = dict[str, Callable[[Any], Any]]  # from bytes or an array of them


class Record:
    """One stored record, with its number in the dataset; its parts are read on access."""

    __slots__ = ("_row", "_shard", "_values", "index")

    def __init__(self, index: int, shard: ShardReader, row: int, values: ValueReaders) -> None:
        self.index = index
        self._shard = shard
        self._row = row
        self._values = values

    @property
    def key(self) -> str:
        """Its path relative to the source from which it was packed."""
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

        Raises:
            DamageError: The stored bytes are no such value: another program wrote them.
        """
        stored = self._shard.row(name, self._row)
        read = self._values[name]
        try:
            return read(stored)
        except ValueError as error:
            raise DamageError(
                f"record {self.index} (key {self.key!r}): field {name!r} has {len(stored)} bytes, no value "
                "of it: the program that wrote the dataset did not follow docs/format.md"
            ) from error


def value_reader(field: Field) -> Callable[[Any], Any]:
    """Return the function that converts a field's stored bytes, to be called for every record."""
    if field.kind in ("image", "bytes"):
        return bytes
    if field.kind == "text":
        return lambda stored: bytes(stored).decode("utf-8", "surrogateescape")
    dtype = field.columns()[0].numpy_dtype
    if field.kind == "scalar":
        # Six times as fast as a NumPy array of one element.
        unpack = struct.Struct("<" + _STRUCT_CODES[field.dtype]).unpack
        return lambda stored: unpack(stored)[0]
    shape = field.shape if field.kind == "vector" else (-1, *field.shape)
    return lambda stored: np.frombuffer(stored, dtype).reshape(shape)
