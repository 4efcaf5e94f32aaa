"""A file in memory, of which only the stretches that are written take room."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

_PAGE_BYTES = 64 << 10


class SparseFile(io.RawIOBase):
    """What h5py writes where it is given it in place of a path; everything else reads as zeros."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self.size_bytes = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence, self.size_bytes)
        return self._position

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._position

    def truncate(self, size: int | None = None) -> int:
        """See `io.RawIOBase`; what is cut off is not zeroed, as h5py never cuts what it has written."""
        self.size_bytes = self._position if size is None else size
        return self.size_bytes

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(buffer).cast("B")
        wanted = max(min(len(view), self.size_bytes - self._position), 0)
        done = 0
        while done < wanted:
            number, begin = divmod(self._position, _PAGE_BYTES)
            size = min(_PAGE_BYTES - begin, wanted - done)
            page = self._pages.get(number)
            view[done : done + size] = page[begin : begin + size] if page is not None else bytes(size)
            self._position += size
            done += size
        return done

    def write(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            number, begin = divmod(self._position, _PAGE_BYTES)
            size = min(_PAGE_BYTES - begin, len(view) - done)
            page = self._pages.setdefault(number, bytearray(_PAGE_BYTES))
            page[begin : begin + size] = view[done : done + size]
            self._position += size
            done += size
        if done:
            self.size_bytes = max(self.size_bytes, self._position)
        return done

    def stretches(self, hole_begin: int, hole_end: int) -> Iterator[tuple[int, memoryview]]:
        """All that was written, by offset and ascending, without what lies in a hole."""
        for number in sorted(self._pages):
            begin = number * _PAGE_BYTES
            end = min(begin + _PAGE_BYTES, self.size_bytes)
            for first, last in ((begin, min(end, hole_begin)), (max(begin, hole_end), end)):
                if first < last:
                    yield first, memoryview(self._pages[number])[first - begin : last - begin]
