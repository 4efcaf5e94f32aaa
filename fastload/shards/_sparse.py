"""A sparse file in memory: only the pages that are written take memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

_PAGE_BYTES = 64 << 10


class SparseFile(io.RawIOBase):
    """File object that h5py writes to instead of a path; unwritten bytes read as zeros."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self.size_bytes = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence, self.size_bytes)
        return self._position

    def truncate(self, size: int | None = None) -> int:
        # Bytes beyond the size are not zeroed: h5py never truncates what it has written.
        self.size_bytes = self._position if size is None else size
        return self.size_bytes

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(min(len(view), self.size_bytes - self._position), 0)
        for number, begin, part in self._next_pages(view[:wanted]):
            page = self._pages.get(number)
            part[:] = page[begin : begin + len(part)] if page is not None else bytes(len(part))
        return wanted

    def write(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        for number, begin, part in self._next_pages(view):
            page = self._pages.setdefault(number, bytearray(_PAGE_BYTES))
            page[begin : begin + len(part)] = part
        if len(view):
            self.size_bytes = max(self.size_bytes, self._position)
        return len(view)

    def _next_pages(self, view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
        """Advance over a buffer page by page: page number, offset in the page, part of the buffer."""
        done = 0
        while done < len(view):
            number, begin = divmod(self._position, _PAGE_BYTES)
            part = view[done : done + _PAGE_BYTES - begin]
            yield number, begin, part
            self._position += len(part)
            done += len(part)

    def written_ranges(self, hole_begin: int, hole_end: int) -> Iterator[tuple[int, memoryview]]:
        """Yield all written ranges outside a hole, with their offsets, in ascending order."""
        for number in sorted(self._pages):
            begin = number * _PAGE_BYTES
            end = min(begin + _PAGE_BYTES, self.size_bytes)
            for first, last in ((begin, min(end, hole_begin)), (max(begin, hole_end), end)):
                if first < last:
                    yield first, memoryview(self._pages[number])[first - begin : last - begin]
