"""Members of tar files, read at their offsets without extracting anything.

A compressed file can only be read forwards: reading members in order takes one pass, and every step back
starts another.
"""

from __future__ import annotations

import lzma
import os
import tarfile
import weakref
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from fastload.sources.files import NOT_FOUND
from fastload.sources.malformed import explaining, malformed

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")

_READ_BYTES = 1 << 20
_DAMAGED = "the file is damaged or was cut off: copy or write it again"
_ERRORS = (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error, lzma.LZMAError)


class TarMember(NamedTuple):
    """Member of a tar file other than a folder: its name, and the offset and size of its bytes.

    The size is NOT_FOUND for links and devices.
    """

    name: str
    offset: int
    size_bytes: int


class TarReader:
    """Reader of tar files; the last file stays open, because seeking in a compressed one means reading it."""

    def __init__(self) -> None:
        self._path = ""
        self._process = 0
        self._file: Any = None
        self._close = weakref.finalize(self, int)

    def __reduce__(self) -> tuple[type[TarReader], tuple[()]]:
        return TarReader, ()

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return the bytes at an offset; raise SourceError if they cannot be read."""
        with _explaining(path):
            # A forked process would share its parent's position in the file.
            if (self._path, self._process) != (path, os.getpid()):
                self._close()
                archive = _open(path)
                self._file, self._path, self._process = archive.fileobj, path, os.getpid()
                self._close = weakref.finalize(self, archive.close)
            self._file.seek(offset)
            data: bytes = self._file.read(size_bytes)
            return data


def tar_members(path: str) -> Iterator[TarMember]:
    """Yield the members of a tar file in order; raise SourceError, naming the offset, if it is damaged."""
    archive: Any
    with _explaining(path), _open(path) as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # millions of them would take gigabytes
            if member.issparse():
                where = f"{path}, offset {member.offset}"
                raise malformed(where, "hold members without holes", "a sparse one", "write it without them")
            if not member.isdir():
                yield TarMember(member.name, member.offset_data, member.size if member.isreg() else NOT_FOUND)
        while rest := archive.fileobj.read(_READ_BYTES):
            if any(rest):
                must = "hold nothing after the end of the archive"
                raise malformed(f"{path}, offset {archive.offset}", must, "more bytes", _DAMAGED)


class _StrictHeader(tarfile.TarInfo):
    """Header of a member that raises an error for damage, where tarfile would silently end the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _StrictHeader:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the end; missing from the stubs
            raise
        except tarfile.HeaderError as error:
            where = f"{archive.name!s}, offset {archive.offset}"
            raise malformed(where, "hold a tar header", error, _DAMAGED) from error


def _open(path: str) -> tarfile.TarFile:
    if path.lower().endswith(".zst") and "zst" not in tarfile.TarFile.OPEN_METH:
        step = "decompress it first (zstd -d), or pack with Python 3.14"
        raise malformed(path, "be compressed by gzip, bzip2 or xz", "zstd", step)
    return tarfile.open(path, tarinfo=_StrictHeader, encoding="utf-8", errors="surrogateescape")


def _explaining(path: str) -> AbstractContextManager[None]:
    return explaining(_ERRORS, path, "be a tar file that can be read", _DAMAGED)
