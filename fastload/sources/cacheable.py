"""Image files as the source of a cache: record i is file i, without bytes if it must not be cached."""

from __future__ import annotations

import contextlib
import os

from fastload.contracts import SourceRecord
from fastload.errors import DecodeError, SourceError
from fastload.images.header import orientation_of, parsed_header
from fastload.shards.schema import Field
from fastload.sources.files import FileList, digest_of
from fastload.sources.protocol import Source


class CacheableFiles(Source):
    """Image files, each with its EXIF orientation; a file that must not be cached has no bytes.

    A file is not cached if it cannot be read or has changed since it was listed; with `alike_only`, also if
    OpenCV and PIL might decode it differently. With `on_error="keep"`, such a file is packed as an unreadable
    record, so that all other records keep their indices.

    `origin` is the digest of all files, which the packed copy names; a part of a source keeps that of the
    whole.
    """

    def __init__(self, files: FileList, folder: str, *, alike_only: bool, origin: str = "") -> None:
        orientation = Field("orientation", "scalar", "uint8")
        super().__init__(kind="files", name=folder, classes=(), fields=(orientation,))
        self.files = files
        self.alike_only = alike_only
        self.origin = origin or self.fingerprint()
        self.details = {"origin": self.origin}

    def __len__(self) -> int:
        return len(self.files)

    def part(self, count: int) -> CacheableFiles:
        """Return the source of the first `count` files."""
        if count >= len(self):
            return self
        files = self.files.part(range(count))
        return CacheableFiles(files, self.name, alike_only=self.alike_only, origin=self.origin)

    def read(self, index: int) -> SourceRecord:
        """Read one file; raise AccessError if this process may not open more files."""
        data, orientation = b"", 1
        with contextlib.suppress(SourceError, DecodeError, FileNotFoundError):
            found = self.files.read(index)
            header = parsed_header(found)
            is_alike = header is not None and header.is_read_alike
            is_unchanged = os.stat(self.files.path(index)).st_mtime_ns == int(self.files.times_ns[index])
            if (is_alike or not self.alike_only) and is_unchanged:
                data, orientation = found, orientation_of(found)
        return SourceRecord(self.key(index), data, {"orientation": orientation})

    def fingerprint(self) -> str:
        """Return a digest of the paths, sizes and times of all files."""
        return digest_of((self.files.folder, self.alike_only), [self.files])
