"""Members of a tar file, by the offsets of their bytes, so that records are read without extracting anything.

Python's tarfile ends without an error at a damaged or missing header; here both are errors. The format is
POSIX.1-2017's (pax, "ustar Interchange Format"), with GNU's long names.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

from fastload.errors import SourceError

_BLOCK = 512
_REGULAR = (b"0", b"\0", b"7")
_GNU_NAME, _GNU_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_DAMAGED = "the file is damaged or was cut off: copy or write it again"


class TarMember(NamedTuple):
    """A regular file in a tar file: its name, and the place of its bytes."""

    name: str
    offset: int
    size_bytes: int


def tar_members(path: str) -> Iterator[TarMember]:
    """Yield the regular files of a tar file in order; raise SourceError, naming the offset, for damage."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _members(path, data)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{path}: must be a tar file that can be read, got: {error}: {_DAMAGED}") from error


def _members(path: str, data: mmap.mmap) -> Iterator[TarMember]:
    offset = 0
    extended: dict[str, str] = {}
    while True:
        header = data[offset : offset + _BLOCK]
        if len(header) < _BLOCK:
            raise _error(path, offset, "a header or the end of the archive", "the end of the file")
        if not any(header):
            break
        if not _is_header(header):
            raise _error(path, offset, "a tar header", "bytes with another checksum")
        kind, begin = header[156:157], offset + _BLOCK
        size = _number(header[124:136])
        if kind not in (_GNU_NAME, _GNU_LINK, _PAX, _PAX_GLOBAL) and "size" in extended:
            size = int(extended["size"]) if extended["size"].isdecimal() else -1
        if not 0 <= size <= len(data) - begin:
            got = f"{max(0, len(data) - begin):,} before the end of the file"
            raise _error(path, offset, f"a member of {size:,} bytes", got)
        offset = begin + -(-size // _BLOCK) * _BLOCK
        if kind == _GNU_NAME:
            extended["path"] = _text(data[begin : begin + size])
        elif kind == _PAX:
            extended |= _pax_records(path, begin, data[begin : begin + size])
        elif kind not in (_GNU_LINK, _PAX_GLOBAL):
            name = extended.get("path") or _name(header)
            extended = {}
            if kind in _REGULAR and not name.endswith("/"):
                yield TarMember(name, begin, size)
    rest = data[offset:]
    if rest.count(0) < len(rest):
        raise _error(path, offset, "nothing after the end of the archive", "more bytes")


def _error(path: str, offset: int, must: str, got: str) -> SourceError:
    return SourceError(f"{path}, offset {offset}: must hold {must}, got {got}: {_DAMAGED}")


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
