"""One record of a packed dataset: its stored bytes, and the values of its fields."""

from __future__ import annotations

import os
import struct
from typing import Any

from fastload.errors import DamageError
from fastload.shards.container import ByteArray, ShardReader
from fastload.shards.values import ValueReader

_SHAPE = struct.Struct("<3I")
ValueReaders = dict[str, ValueReader]  # by field


class Record:
    """One stored record, with its index in the dataset; its parts are read on access."""

    __slots__ = ("_row", "_shard", "_values", "index")

    def __init__(self, index: int, shard: ShardReader, row: int, values: ValueReaders) -> None:
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
