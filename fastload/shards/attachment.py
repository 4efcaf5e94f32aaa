"""The attachment of a packed dataset: the source's annotation files, byte for byte, in one compressed tar.

Records hold what training reads. The files from which it came (label files, a data.yaml, lists of splits) go
into `annotations.tar.gz` beside the first split's shards, so that unpacking restores them as they were.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from google_crc32c import extend

from fastload.errors import DamageError
from fastload.shards.json_values import JsonValue
from fastload.shards.remote import RemoteFolder

ATTACHMENT_NAME = "annotations.tar.gz"

_READ_BYTES = 1 << 20
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


def write_attachment(
    path: Path, files: Iterable[tuple[str, bytes]], splits: tuple[str, ...]
) -> Attachment | None:
    """Write files, by their names, to an attachment; return its entry, or None if there are no files."""
    count = 0
    with path.open("wb") as target, gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed:
        measured = _Measured(packed)
        with tarfile.open(fileobj=measured, mode="w|") as tar:
            for name, data in files:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
                tar.members.clear()  # type: ignore[attr-defined]  # millions of them would take gigabytes
                count += 1
    return Attachment(count, measured.size_bytes, measured.crc32c, splits) if count else None


def check_attachment(folder: str | os.PathLike[str] | RemoteFolder, attachment: Attachment) -> None:
    """Raise DamageError if the attachment is damaged."""
    with _opened(folder, attachment):
        pass


def read_attachment(
    folder: str | os.PathLike[str] | RemoteFolder, attachment: Attachment
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file; raise DamageError before, if the attachment is damaged."""
    with (
        _opened(folder, attachment) as target,
        gzip.GzipFile(fileobj=target) as packed,
        tarfile.open(fileobj=packed, mode="r|") as tar,
    ):
        for entry in tar:
            file = tar.extractfile(entry)
            if file is None or entry.size > attachment.size_bytes:
                raise tarfile.ReadError(f"{entry.name!r} is no file")
            yield entry.name, file.read()
            tar.members.clear()  # type: ignore[attr-defined]


@contextlib.contextmanager
def _opened(folder: str | os.PathLike[str] | RemoteFolder, attachment: Attachment) -> Iterator[IO[bytes]]:
    """Open an attachment after a check of its size and checksum; raise DamageError if it cannot be read."""
    try:
        with _file(folder) as file:
            measured = _Measured()
            with gzip.GzipFile(fileobj=file) as packed:
                while measured.size_bytes <= attachment.size_bytes and (data := packed.read(_READ_BYTES)):
                    measured.write(data)
            if (measured.size_bytes, measured.crc32c) != (attachment.size_bytes, attachment.crc32c):
                raise tarfile.ReadError(
                    f"it must hold {attachment.size_bytes:,} bytes with the checksum {attachment.crc32c}, "
                    f"got {measured.size_bytes:,} with {measured.crc32c}"
                )
            file.seek(0)
            yield file
    except _ERRORS as error:
        raise DamageError(
            f"{os.path.join(str(folder), ATTACHMENT_NAME)}: cannot be read ({error}): the file was damaged "
            "after packing: restore it from a copy, or pack again"
        ) from error


class _Measured(io.BufferedIOBase):
    """A file that passes what is written on to another, if there is one, with its size and checksum."""

    def __init__(self, target: gzip.GzipFile | None = None) -> None:
        super().__init__()
        self._target = target
        self._crc = 0
        self.size_bytes = 0

    def write(self, data: bytes, /) -> int:  # type: ignore[override]  # tarfile writes bytes alone
        self._crc = extend(self._crc, data)
        self.size_bytes += len(data)
        return len(data) if self._target is None else self._target.write(data)

    @property
    def crc32c(self) -> str:
        return format(self._crc, "08x")


def _file(folder: str | os.PathLike[str] | RemoteFolder) -> IO[bytes]:
    if isinstance(folder, RemoteFolder):
        return io.BytesIO(folder.read(ATTACHMENT_NAME))
    return open(os.path.join(folder, ATTACHMENT_NAME), "rb")
