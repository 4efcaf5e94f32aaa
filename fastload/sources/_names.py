"""Table of strings in two arrays, for millions of names.

A list of ten million names takes a gigabyte, and as much again in each forked worker, because reading a
Python object writes its reference count. Two arrays stay shared, and are pickled in one copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise


class NameTable(Sequence[str]):
    """A sequence of strings to add to, stored as joined UTF-8 bytes and n + 1 int64 offsets.

    Names that are not UTF-8 come from `os` with surrogate escapes (PEP 383), and go in and out unchanged.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.data = bytearray()
        self.offsets = array("q", [0])
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        """Add a name at the end."""
        self.data += name.encode("utf-8", "surrogateescape")
        self.offsets.append(len(self.data))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no slices
        position = range(len(self))[index]  # handles negative indices, and raises IndexError
        start, stop = self.offsets[position], self.offsets[position + 1]
        return self.data[start:stop].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        for start, stop in pairwise(self.offsets):
            yield self.data[start:stop].decode("utf-8", "surrogateescape")
