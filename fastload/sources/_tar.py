"""Members of a tar file, by the offsets of their bytes, so that records are read without extracting anything.

Python's tarfile ends without an error at a damaged or missing header; here both are errors. The format is
POSIX.1-2017's (pax, "ustar Interchange Format"), with GNU's long names. A compressed file is read from front
to back: members in their order cost one pass, a step back begins another one.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import lzma
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fastload.errors import SourceError
from fastload.sources._malformed import malformed
from fastload.sources.files import NOT_FOUND

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")

_BLOCK = 512
_REGULAR = (b"0", b"\0", b"7")
_FOLDER, _SPARSE = b"5", b"S"
_GNU_NAME, _GNU_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_MOST_BYTES = 1 << 62
_MOST_HEADER_BYTES = 1 << 20  # of a name, or of an extended header
_READ_BYTES = 1 << 20
_DAMAGED = "the file is damaged or was cut off: copy or write it again"

# The first bytes of compressed files, and the functions that open them; zstd is in Python 3.14.
_zstd: Any = None
with contextlib.suppress(ImportError):
    _zstd = importlib.import_module("compression.zstd")
_COMPRESSED: tuple[tuple[bytes, Callable[[str], Any] | None], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"\x28\xb5\x2f\xfd", _zstd and _zstd.open),
)
_ERRORS = (OSError, EOFError, ValueError, OverflowError, zlib.error, lzma.LZMAError) + (
    (_zstd.ZstdError,) if _zstd else ()
)


class TarMember(NamedTuple):
    """A member of a tar file that is no folder: its name, and the place of its bytes.

    The size is NOT_FOUND for links and devices.
    """

    name: str
    offset: int
    size_bytes: int


class TarReader:
    """Bytes of tar files; the last file stays open, as a place in a compressed one is found by reading it."""

    def __init__(self) -> None:
        self._path = ""
        self._process = 0
        self._file: Any = None
        self._close = weakref.finalize(self, int)

    def __reduce__(self) -> tuple[type[TarReader], tuple[()]]:
        return TarReader, ()

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return the bytes at a place; raise SourceError if they cannot be read."""
        with _naming(path):
            # A process made by fork would share the position in the file.
            if (self._path, self._process) != (path, os.getpid()):
                self._close()
                self._file, self._path, self._process = _open(path), path, os.getpid()
                self._close = weakref.finalize(self, self._file.close)
            self._file.seek(offset)
            data: bytes = self._file.read(size_bytes)
            return data


def tar_members(path: str) -> Iterator[TarMember]:
    """Yield the members of a tar file in order; raise SourceError, naming the offset, for damage."""
    with _naming(path), _open(path) as file:
        yield from _members(path, file)


def _open(path: str) -> Any:
    file = open(path, "rb")  # noqa: SIM115 - the caller closes it
    start = file.read(8)
    for magic, opens in _COMPRESSED:
        if start.startswith(magic):
            file.close()
            if opens is None:
                step = "decompress it first (zstd -d), or pack with Python 3.14"
                raise malformed(path, "be compressed by gzip, bzip2 or xz", "zstd", step)
            return opens(path)
    return file


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn errors of reading into a SourceError that names the file."""
    try:
        yield
    except SourceError:
        raise
    except _ERRORS as error:
        raise malformed(path, "be a tar file that can be read", error, _DAMAGED) from error


def _members(path: str, file: Any) -> Iterator[TarMember]:
    offset = 0
    extended: dict[str, str] = {}
    while True:
        file.seek(offset)
        header = file.read(_BLOCK)
        if len(header) < _BLOCK:
            raise _error(path, offset, "a header or the end of the archive", "the end of the file")
        if not any(header):
            break
        if not _is_header(header):
            raise _error(path, offset, "a tar header", "bytes with another checksum")
        kind, begin = header[156:157], offset + _BLOCK
        size = _number(header[124:136])
        is_name = kind in (_GNU_NAME, _GNU_LINK, _PAX, _PAX_GLOBAL)
        if not is_name and "size" in extended:
            size = int(extended["size"]) if extended["size"].isdecimal() else -1
        data = b""
        if is_name and 0 <= size <= _MOST_HEADER_BYTES:
            data = file.read(size)
            is_whole = len(data) == size
        else:
            is_whole = not is_name and 0 <= size <= _MOST_BYTES
            if is_whole and size:
                file.seek(begin + size - 1)
                is_whole = len(file.read(1)) == 1
        if not is_whole:
            raise _error(path, offset, f"a member of {size:,} bytes", "fewer before the end of the file")
        if kind == _SPARSE or any(name.startswith("GNU.sparse") for name in extended):
            raise _error(path, offset, "members without holes", "a sparse one")
        offset = begin + -(-size // _BLOCK) * _BLOCK
        if kind == _GNU_NAME:
            extended["path"] = _text(data)
        elif kind == _PAX:
            extended |= _pax_records(path, begin, data)
        elif not is_name:
            name = extended.get("path") or _name(header)
            extended = {}
            if kind in _REGULAR and not name.endswith("/"):
                yield TarMember(name, begin, size)
            elif kind not in (*_REGULAR, _FOLDER):
                yield TarMember(name, begin, NOT_FOUND)
    while rest := file.read(_READ_BYTES):
        if any(rest):
            raise _error(path, offset, "nothing after the end of the archive", "more bytes")


def _error(path: str, offset: int, must: str, got: str) -> SourceError:
    return malformed(f"{path}, offset {offset}", f"hold {must}", got, _DAMAGED)


def _is_header(header: bytes) -> bool:
    """Return True if a block's checksum is that of its bytes, its own field counted as spaces."""
    return _number(header[148:156]) == sum(header) - sum(header[148:156]) + 8 * 0x20


def _number(field: bytes) -> int:
    """Return a number in octal digits, or in GNU's binary form for large ones; -1 if it is neither."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        return -1


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _pax_records(path: str, offset: int, data: bytes) -> dict[str, str]:
    """Return the records of an extended header, each `LENGTH KEY=VALUE` and a line feed."""
    records = {}
    while data:
        digits, _, rest = data.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 12 else 0
        record = rest[: length - len(digits) - 1]
        key, equals, value = record.partition(b"=")
        if not equals or not record.endswith(b"\n") or len(data) < length:
            raise _error(path, offset, "an extended header of 'length key=value' records", repr(data[:40]))
        records[_text(key)] = _text(value[:-1])
        data = data[length:]
    return records
