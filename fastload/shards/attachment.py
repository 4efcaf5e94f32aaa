"""The attachment of a packed dataset: the source's annotation files, byte for byte, in one compressed tar.

Records hold what training reads. The files from which it came (label files, a data.yaml, lists of splits) go
into `annotations.tar.gz` beside the first split's shards, so that unpacking restores them as they were.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from google_crc32c import extend

from fastload.errors import DamageError
from fastload.shards._json_values import JsonValue
from fastload.shards.remote import RemoteFolder

ATTACHMENT_NAME = "annotations.tar.gz"

_READ_BYTES = 1 << 20
_STEP = "the file was damaged after packing: restore it from a copy, or pack again"
_ERRORS = (OSError, EOFError, zlib.error, tarfile.TarError)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The attachment as the manifest lists it.

    Size and checksum are those of the tar before compression, because releases of zlib differ.
    """

    files: int
    size_bytes: int
    crc32c: str
    splits: tuple[str, ...]  # all splits of the source: only together are they what the files describe

    @classmethod
    def from_json(cls, entry: JsonValue) -> Attachment:
        """Read an entry; raise ValueError, which names the value, if one is impossible."""
        return cls(
            entry["files"].count(1),
            entry["size_bytes"].count(1),
            entry["crc32c"].text(),
            tuple(split.text() for split in entry["splits"].each()),
        )


class _Metered(io.RawIOBase):
    """A file that counts and checks what goes through it; more than it may hold is an error."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, most_bytes: float = math.inf) -> None:
        super().__init__()
        self._file = file
        self._most_bytes = most_bytes
        self.size_bytes = self.crc = 0

    def write(self, data: Any) -> int:
        self._file.write(data)
        return self._count(bytes(data))

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._count(data)
        return data

    def _count(self, data: bytes) -> int:
        self.crc = extend(self.crc, data)
        self.size_bytes += len(data)
        if self.size_bytes > self._most_bytes:
            raise OSError(f"it holds more than its {self._most_bytes:,} bytes")
        return len(data)


def write_attachment(
    path: Path, files: Iterable[tuple[str, bytes]], splits: tuple[str, ...]
) -> Attachment | None:
    """Write files, by their names, to an attachment; return its entry, or None if there are no files."""
    count = 0
    with path.open("wb") as target, gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed:
        counted = _Metered(packed)
        with tarfile.open(fileobj=counted, mode="w|") as tar:
            for name, data in files:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
                tar.members.clear()  # type: ignore[attr-defined]  # millions of them would take gigabytes
                count += 1
    return Attachment(count, counted.size_bytes, format(counted.crc, "08x"), splits) if count else None


def read_attachment(
    folder: str | os.PathLike[str] | RemoteFolder, attachment: Attachment
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file; raise DamageError if the attachment is damaged."""
    where = os.path.join(str(folder), ATTACHMENT_NAME)
    try:
        with _opened(folder) as target, gzip.GzipFile(fileobj=target) as packed:
            checked = _Metered(packed, attachment.size_bytes)
            with tarfile.open(fileobj=checked, mode="r|") as tar:
                for entry in tar:
                    file = tar.extractfile(entry)
                    if file is None or entry.size > attachment.size_bytes:
                        raise tarfile.ReadError(f"{entry.name!r} is no file")
                    yield entry.name, file.read()
                    tar.members.clear()  # type: ignore[attr-defined]
            while checked.read(_READ_BYTES):
                pass
    except _ERRORS as error:
        raise DamageError(f"{where}: cannot be read ({error}): {_STEP}") from error
    found = checked.size_bytes, format(checked.crc, "08x")
    if found != (attachment.size_bytes, attachment.crc32c):
        raise DamageError(
            f"{where}: must hold {attachment.size_bytes:,} bytes with the checksum {attachment.crc32c}, got "
            f"{found[0]:,} with {found[1]}: {_STEP}"
        )


def _opened(folder: str | os.PathLike[str] | RemoteFolder) -> IO[bytes]:
    if isinstance(folder, RemoteFolder):
        return io.BytesIO(folder.read(ATTACHMENT_NAME))
    return open(os.path.join(folder, ATTACHMENT_NAME), "rb")
