"""Table of strings in two arrays, for millions of names.

A list of ten million names takes a gigabyte, and as much again in each forked worker, because reading a
Python object writes its reference count. Two arrays stay shared, and are pickled in one copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
import numpy.typing as npt

# Offsets converted to Python integers at a time: those of ten million names would take 300 MB.
_ITERATED_AT_ONCE = 65536


class NameTable(Sequence[str]):
    """An immutable sequence of strings, stored as joined UTF-8 bytes and n + 1 int64 offsets.

    Names that are not UTF-8 come from `os` with surrogate escapes (PEP 383), and go in and out unchanged.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        data.setflags(write=False)
        offsets.setflags(write=False)
        self.data = data
        self.offsets = offsets

    @classmethod
    def of(cls, names: Iterable[str]) -> NameTable:
        """Return a table of names, taken one by one."""
        builder = NameTableBuilder()
        for name in names:
            builder.append(name)
        return builder.build()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> NameTable: ...

    def __getitem__(self, index: int | slice) -> str | NameTable:
        if isinstance(index, slice):
            return NameTable.of(self[position] for position in range(len(self))[index])
        position = range(len(self))[index]  # handles negative indices, and raises IndexError
        start, stop = self.offsets[position], self.offsets[position + 1]
        return self.data[start:stop].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        # Takes a third of the time of indexing one by one.
        data = self.data.data
        for first in range(0, len(self), _ITERATED_AT_ONCE):
            for start, stop in pairwise(self.offsets[first : first + _ITERATED_AT_ONCE + 1].tolist()):
                yield str(data[start:stop], "utf-8", "surrogateescape")

    def __reduce__(self) -> tuple[Callable[..., NameTable], tuple[object, ...]]:
        # NumPy's own unpickling would leave the arrays writable.
        return NameTable, (self.data, self.offsets)


class NameTableBuilder:
    """Builds a `NameTable`; must not be used after `build`."""

    __slots__ = ("_data", "_offsets")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets = array("q", [0])

    def append(self, name: str) -> None:
        """Add a name at the end."""
        self._data += name.encode("utf-8", "surrogateescape")
        self._offsets.append(len(self._data))

    def build(self) -> NameTable:
        """Return the table of all names, which takes over their bytes without a copy."""
        data, offsets = np.frombuffer(self._data, np.uint8), np.frombuffer(self._offsets, np.int64)
        return NameTable(data, offsets)
