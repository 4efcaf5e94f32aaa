"""Records that are files: listed once, by name, size and time, then read by any process."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dc_field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import AccessError, SourceError
from fastload.images.limits import MOST_BYTES
from fastload.shards.manifest import LeftOut, Skipped
from fastload.shards.schema import Field
from fastload.sources.names import NameTable, NameTableBuilder
from fastload.sources.protocol import SourceRecord, evenly_spaced

NOT_FOUND = -1
"""The size of a file that was not there when it was listed."""

NO_LABEL = -1
"""The label of an image for which none is known."""

READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""With which any file is opened: a pipe that is named like an image must not stop a worker for ever.

Windows has no such flag, but would translate line ends without its own.
"""

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Errors of this process or machine, not of the file that was to be opened."""


@dataclass(frozen=True, slots=True, eq=False)
class FileList:
    """Files as they were when they were listed; arrays only, so that millions stay cheap.

    Attributes:
        folder: An absolute path, from which relative names count.
        names: Each file's path, relative to the folder or absolute.
        sizes_bytes: Each file's size, int64; NOT_FOUND where there was no file.
        times_ns: When each file was last modified, int64.
    """

    folder: str
    names: NameTable
    sizes_bytes: npt.NDArray[np.int64]
    times_ns: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def part(self, indices: Sequence[int]) -> FileList:
        """The files at these indices, in their order; negative ones count from the end.

        Raises:
            IndexError: There is no such file.
        """
        positions = np.array(indices, dtype=np.int64)
        names = NameTable.of(self.names[index] for index in indices)
        return FileList(self.folder, names, self.sizes_bytes[positions], self.times_ns[positions])

    def path(self, index: int) -> str:
        """The absolute path of a file."""
        return os.path.join(self.folder, self.names[index])

    def read(self, index: int) -> bytes:
        """The bytes of a file.

        Raises:
            AccessError: This process or machine may not open more files.
            SourceError: The file is gone, cannot be read, has another size than when listed, or is larger
                than any that can be decoded.
        """
        path = self.path(index)
        size_bytes = int(self.sizes_bytes[index])
        if size_bytes > MOST_BYTES:
            raise SourceError(
                f"{path}: must have at most {MOST_BYTES:,} bytes to be decoded, got {size_bytes:,}: "
                "it is no image, or must be stored in a smaller form"
            )
        try:
            data = _read_file(path, size_bytes)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            reason = getattr(error, "strerror", None) or error
            is_ours_to_mend = getattr(error, "errno", None) in OUT_OF_DESCRIPTORS
            raise (AccessError if is_ours_to_mend else SourceError)(
                f"{path}: must be a file that can be read, got: {reason}: {_next_step(error)}"
            ) from error
        if len(data) != size_bytes:
            raise SourceError(
                f"{path}: must have the {size_bytes:,} bytes that it had when it was listed, got "
                f"{'more' if len(data) > size_bytes else f'{len(data):,}'}: list the source again"
            )
        return data

    def prefetch(self, indices: Sequence[int]) -> None:
        """Has the system fetch some files from the disk, and does not wait.

        It stops at the first that lies in the page cache: others are taken to do so too.

        Raises:
            OSError: A file cannot be opened.
        """
        if not hasattr(os, "posix_fadvise"):
            return
        for index in indices:
            handle = os.open(self.path(index), READ_FLAGS)
            try:
                if _is_cached(handle):
                    return
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)


Values = npt.NDArray[np.int64] | npt.NDArray[np.float64] | NameTable | FileList
"""One field's value for every record: numbers, texts, or image files."""


def _next_step(error: OSError | ValueError) -> str:
    """What to do about a file that cannot be read."""
    number = getattr(error, "errno", None)
    if number in (errno.EACCES, errno.EPERM):
        return "allow this user to read it, or run as one who may"
    if number in OUT_OF_DESCRIPTORS:
        return "allow this process more open files (ulimit -n)"
    if number == errno.EIO:
        return "the disk or the network fails: check it, and restore the file from a copy"
    return "restore it, or list the source again without it"


def _is_cached(handle: int) -> bool:
    """Whether a file can be read without waiting for the disk; True also where that cannot be told."""
    nowait = getattr(os, "RWF_NOWAIT", None)
    if nowait is None:
        return True
    try:
        os.preadv(handle, [bytearray(1)], 0, nowait)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system that cannot tell
    return True


class FileLister:
    """Collects a `FileList`; done once `finish` was called."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names = NameTableBuilder()
        self._sizes_bytes = array("q")
        self._times_ns = array("q")

    def __len__(self) -> int:
        return len(self._sizes_bytes)

    def add(self, name: str) -> None:
        """Adds a file by its path, relative to the folder or absolute, whether or not it exists."""
        self._names.append(name)
        try:
            status = os.stat(os.path.join(self._folder, name))
        except (OSError, ValueError):  # ValueError: a name with a zero byte
            self._sizes_bytes.append(NOT_FOUND)
            self._times_ns.append(0)
        else:
            self._sizes_bytes.append(status.st_size)
            self._times_ns.append(status.st_mtime_ns)

    def finish(self) -> FileList:
        """All files so far, in the order in which they were added."""
        return FileList(
            self._folder, self._names.build(), np.array(self._sizes_bytes), np.array(self._times_ns)
        )


@dataclass(frozen=True, slots=True, eq=False)
class FileSource:
    """A source whose records are files: a folder's, a table's, or an ImageFolder's.

    Attributes:
        kind: `folder`, `flat` or `table`.
        name: The path as it was given.
        classes: The class names that labels count into.
        fields: What each record holds beside its image.
        files: The files, one a record.
        values: The values of each field, by its name.
        warnings: What the listing found odd and went on from.
        table: The table whose rows the records are, for messages; empty where there is none.
        columns: What the table's columns turned out to be, by field.
        left_out: The files of a folder that are no records.
        unlisted: The folders in it that could not be listed.
    """

    kind: str
    name: str
    classes: tuple[str, ...]
    fields: tuple[Field, ...]
    files: FileList
    values: Mapping[str, Values]
    warnings: tuple[str, ...] = ()
    table: str = ""
    columns: Mapping[str, str] = dc_field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    unlisted: tuple[Skipped, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def part(self, indices: Sequence[int]) -> FileSource:
        """The records at these indices, in their order; negative ones count from the end.

        Raises:
            IndexError: There is no such record.
        """
        positions = np.array(indices, dtype=np.int64)
        values: dict[str, Values] = {}
        for name, column in self.values.items():
            if isinstance(column, NameTable):
                values[name] = NameTable.of(column[index] for index in indices)
            else:
                values[name] = column.part(indices) if isinstance(column, FileList) else column[positions]
        return replace(self, files=self.files.part(indices), values=values)

    def key(self, index: int) -> str:
        """The file's path: relative, `/` between its parts, never leading out of its folder."""
        return safe_key(self.files.names[index])

    def read(self, index: int) -> SourceRecord:
        """Reads one file.

        Raises:
            SourceError: The file is gone, cannot be read, or has changed; names it, and the row
                of a table.
        """
        try:
            image = self.files.read(index)
            values = {name: _value(column, index) for name, column in self.values.items()}
        except SourceError as error:
            if not self.table:
                raise
            raise SourceError(f"{self.table}, row {index + 1}: {error}") from error
        return SourceRecord(self.key(index), image, values)

    def fingerprint(self) -> str:
        """A digest of names, sizes, times and values; moving the folder leaves it as it is."""
        head = repr((self.kind, self.classes, self.fields))
        digest = hashlib.blake2b(head.encode(), digest_size=16)
        for column in (self.files, *self.values.values()):
            for numbers in _arrays(column):
                digest.update(numbers.data)
        return digest.hexdigest()

    def size_bytes(self) -> int:
        """The size of all files together in bytes; a file listed twice counts twice."""
        lists = [self.files, *(column for column in self.values.values() if isinstance(column, FileList))]
        return sum(int(files.sizes_bytes.clip(min=0).sum()) for files in lists)

    def sample(self, count: int) -> list[int]:
        """At most `count` indices, evenly spaced over the source."""
        return evenly_spaced(len(self), count)


def _value(column: Values, index: int) -> object:
    if isinstance(column, FileList):
        return column.read(index)
    return column[index] if isinstance(column, NameTable) else column.item(index)


def _arrays(column: Values) -> Iterator[npt.NDArray[Any]]:
    """All that tells a column from another one."""
    if isinstance(column, FileList):
        yield from (*_arrays(column.names), column.sizes_bytes, column.times_ns)
    elif isinstance(column, NameTable):
        # Offsets go first: they say how many bytes of data belong to the same column.
        yield from (column.offsets, column.data)
    else:
        yield column


def safe_key(path: str) -> str:
    """A path as a key: relative, `/` between its parts, and without `..`.

    >>> safe_key("../photos/./a.jpg")
    'photos/a.jpg'
    """
    normal = posixpath.normpath(path.replace(os.sep, "/")).lstrip("/")
    while normal == ".." or normal.startswith("../"):  # once normal, a path has them in front alone
        normal = normal[3:]
    return normal or "."


def _read_file(path: str, size_bytes: int) -> bytes:
    """A file's bytes, and one more where it has grown.

    Three system calls: 10 µs for a cached file of 117 KB, where `open(path, "rb").read()` takes 14.
    """
    handle = os.open(path, READ_FLAGS)
    try:
        data = os.read(handle, size_bytes + 1)
        while len(data) < size_bytes and (more := os.read(handle, size_bytes + 1 - len(data))):
            data += more  # some file systems give less than was asked for
    finally:
        os.close(handle)
    return data
