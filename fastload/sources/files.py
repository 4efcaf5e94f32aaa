"""Files of records, listed once with their sizes and times in little memory, then read by any process."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, islice, pairwise

import numpy as np
import numpy.typing as npt

from fastload.errors import AccessError, SourceError
from fastload.images.formats import MOST_BYTES
from fastload.sources.malformed import malformed

NOT_FOUND = -1
"""The size of a file that does not exist."""

NO_LABEL = -1
"""The label of an image without a known class."""

# Without O_NONBLOCK, a pipe that is named like an image would block a worker forever; without O_BINARY,
# Windows would translate line endings.
READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Errors due to limits of this process or machine, not to the file being opened."""

# Opening a folder takes as long as looking at this many files by their paths.
_LEAST_IN_FOLDER = 8

OPEN_FILES_STEP = "allow this process more open files (ulimit -n)"
"""The next step after one of these errors."""


_PORTION = 4096  # of names that are encoded or decoded together

Status = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""The sizes of files, and their modification times."""


def require_decodable(where: str, size_bytes: int) -> None:
    """Raise SourceError if an image has more bytes than can be decoded."""
    if size_bytes > MOST_BYTES:
        step = "it is not an image, or must be stored in a smaller form"
        raise malformed(where, f"have at most {MOST_BYTES:,} bytes to be decoded", f"{size_bytes:,}", step)


def unreadable(path: str, error: Exception) -> SourceError | AccessError:
    """Return the error about a file that cannot be opened or read, with the next step."""
    number = getattr(error, "errno", None)
    step = "restore it, or list the source again without it"
    if number == errno.EACCES:
        step = "allow this user to read it, or run as one who may"
    if number in OUT_OF_DESCRIPTORS:
        step = OPEN_FILES_STEP
    found = malformed(path, "be a file that can be read", getattr(error, "strerror", None) or error, step)
    return AccessError(str(found)) if number in OUT_OF_DESCRIPTORS else found


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file without its byte order mark; raise SourceError if it cannot be read."""
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        raise unreadable(path, error) from error


class NameTable(Sequence[str]):
    """An append-only sequence of strings, stored as joined UTF-8 bytes and n + 1 int64 offsets.

    A list of ten million names takes a gigabyte, and as much again in each forked worker, because reading a
    Python object writes its reference count. The two arrays stay shared, and are pickled in one copy.

    Names that are not UTF-8 come from `os` with surrogate escapes (PEP 383), and are returned unchanged.
    """

    __slots__ = ("data", "offsets")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.data = bytearray()
        self.offsets = array("q", [0])
        rest = iter(names)
        while some := list(islice(rest, _PORTION)):
            self.extend(some)

    def append(self, name: str) -> None:
        """Add a name at the end."""
        self.extend([name])

    def extend(self, names: Sequence[str]) -> None:
        """Add names at the end, encoded together: a third of the time of one after another."""
        joined = "".join(names).encode("utf-8", "surrogateescape")
        lengths: Iterable[int] = map(len, names)
        if not joined.isascii():
            lengths = (len(name.encode("utf-8", "surrogateescape")) for name in names)
        ends = accumulate(lengths, initial=len(self.data))
        next(ends)
        self.offsets.extend(ends)
        self.data += joined

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no slices
        position = range(len(self))[index]  # handles negative indices, and raises IndexError
        start, stop = self.offsets[position], self.offsets[position + 1]
        return self.data[start:stop].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _PORTION):  # decoded together: in a third of the time
            offsets = self.offsets[first : first + _PORTION + 1]
            data, base = self.data[offsets[0] : offsets[-1]], offsets[0]
            if data.isascii():
                text = data.decode("ascii")
                yield from [text[start - base : stop - base] for start, stop in pairwise(offsets)]
            else:
                for start, stop in pairwise(offsets):
                    yield data[start - base : stop - base].decode("utf-8", "surrogateescape")


class FileList:
    """Files by their names, stored in arrays, so that millions take little memory.

    `names` are relative to `folder`, an absolute path, or absolute. Sizes and times are those of the first
    access to either, which takes a system call for each file.
    """

    __slots__ = ("_status", "folder", "names")

    def __init__(self, folder: str, names: NameTable, status: Status | None = None) -> None:
        self.folder = folder
        self.names = names
        self._status = status

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        """The size of each file, int64; NOT_FOUND for one that does not exist."""
        return self._listed()[0]

    @property
    def times_ns(self) -> npt.NDArray[np.int64]:
        """The modification time of each file, int64; 0 for one that does not exist."""
        return self._listed()[1]

    def _listed(self) -> Status:
        if self._status is None:
            self._status = _status_of(self.folder, self.names)
        return self._status

    def part(self, indices: Sequence[int]) -> FileList:
        """Return the files at these indices in the order given; negative ones count from the end."""
        positions = np.array(indices, np.int64)
        names = NameTable(self.names[index] for index in indices)
        status = None if self._status is None else (self._status[0][positions], self._status[1][positions])
        return FileList(self.folder, names, status)

    def path(self, index: int) -> str:
        """Return the absolute path of a file."""
        return os.path.join(self.folder, self.names[index])

    def read(self, index: int) -> bytes:
        """Return the bytes of a file.

        Raises:
            AccessError: This process or machine may not open more files.
            SourceError: The file is missing, unreadable, too large, or of another size than when its size
                was listed.
        """
        path = self.path(index)
        size_bytes = None if self._status is None else int(self._status[0][index])
        if size_bytes is not None:
            require_decodable(path, size_bytes)
        try:
            data = _read_file(path, size_bytes)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            raise unreadable(path, error) from error
        if size_bytes is not None and len(data) != size_bytes:
            must = f"have the {size_bytes:,} bytes that it had when it was listed"
            got = "more" if len(data) > size_bytes else f"{len(data):,}"
            raise malformed(path, must, got, "list the source again")
        return data

    def readable(self, indices: Iterable[int] | None = None) -> Iterator[bytes]:
        """Yield the bytes of the files that are not empty and can be read."""
        for index in range(len(self)) if indices is None else indices:
            if self.sizes_bytes[index] > 0:
                with contextlib.suppress(SourceError):
                    yield self.read(index)

    def prefetch(self, indices: Sequence[int]) -> None:
        """Ask the system to read files ahead, without waiting."""
        if not hasattr(os, "posix_fadvise"):
            return
        for index in indices:
            handle = os.open(self.path(index), READ_FLAGS)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)


Values = npt.NDArray[np.int64 | np.float64 | np.bool_] | NameTable | FileList
"""One field's values for all records: numbers, texts, or image files."""


def list_files(folder: str, names: Iterable[str]) -> FileList:
    """List files by paths, absolute or relative to the folder; missing files, and "", are listed too."""
    table = names if isinstance(names, NameTable) else NameTable(names)
    return FileList(folder, table, _status_of(folder, table))


def _status_of(folder: str, names: NameTable) -> Status:
    sizes_bytes, times_ns = array("q"), array("q")
    for inner, group in groupby(names, lambda name: name.rpartition("/")[0]):
        place, skipped = os.path.join(folder, inner), len(inner) + bool(inner)
        paths = [name[skipped:] for name in group]
        # Relative to an open folder, which the system then need not find for each file: a quarter of the
        # time of 200,000 files in one.
        handle = _opened(place) if len(paths) >= _LEAST_IN_FOLDER else None
        if handle is None:
            paths = [path and f"{place}/{path}" for path in paths]
        for path in paths:
            try:
                status = os.stat(path, dir_fd=handle)  # an empty path is no file, and not its folder
            except (OSError, ValueError):  # ValueError: a name with a zero byte
                sizes_bytes.append(NOT_FOUND)
                times_ns.append(0)
            else:
                sizes_bytes.append(status.st_size)
                times_ns.append(status.st_mtime_ns)
        if handle is not None:
            os.close(handle)
    return np.array(sizes_bytes), np.array(times_ns)


def _opened(folder: str) -> int | None:
    """Return a descriptor of a folder; None if the system has none to give."""
    if os.stat in os.supports_dir_fd:
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_RDONLY)
    return None


def safe_key(path: str) -> str:
    """Return a path as a key: relative, with `/` between its parts and without `..`.

    >>> safe_key("../photos/./a.jpg")
    'photos/a.jpg'
    """
    normal = posixpath.normpath(path.replace(os.sep, "/")).lstrip("/")
    while normal == ".." or normal.startswith("../"):  # a normalised path has them only at its start
        normal = normal[3:]
    return normal or "."


def value_at(column: Values, index: int) -> object:
    """Return one record's value; for a file, its bytes, b"" if it has no name."""
    if isinstance(column, FileList):
        return column.read(index) if column.names[index] else b""
    return column[index] if isinstance(column, NameTable) else column.item(index)


def digest_of(head: object, columns: Iterable[Values]) -> str:
    """Return a hexadecimal digest of the repr of `head` and of columns; files by names, sizes and times."""
    digest = hashlib.blake2b(repr(head).encode("utf-8", "surrogateescape"), digest_size=16)
    for column in columns:
        for numbers in _arrays_of(column):
            digest.update(numbers)
    return digest.hexdigest()


def _arrays_of(column: Values) -> list[memoryview]:
    if isinstance(column, FileList):
        return [*_arrays_of(column.names), *_arrays_of(column.sizes_bytes), *_arrays_of(column.times_ns)]
    if isinstance(column, NameTable):
        # Offsets go first: they determine how many bytes of data belong to the same column.
        return [memoryview(column.offsets), memoryview(column.data)]
    return [column.data]


def _read_file(path: str, size_bytes: int | None) -> bytes:
    """Return a file's bytes, and one more if it has more than it should; None for any size.

    The system calls take 10 µs for a cached file of 117 KB; `open(path, "rb").read()` takes 14 µs.
    """
    handle = os.open(path, READ_FLAGS)
    try:
        if size_bytes is None:
            size_bytes = os.fstat(handle).st_size
            require_decodable(path, size_bytes)
        data = os.read(handle, size_bytes + 1)
        while len(data) < size_bytes and (more := os.read(handle, size_bytes + 1 - len(data))):
            data += more  # some file systems return less than requested
    finally:
        os.close(handle)
    return data
