"""Storage of an unfinished dataset (DATASET) and of its state (STATE), on this machine or at a URL."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import RemoteMissingError
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import ShardEntry, is_own_name
from fastload.shards.remote import RemoteFolder

DATASET, STATE = "dataset", "state"


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A staging folder on this machine, or on a file system that several machines share."""

    root: Path

    @property
    def scratch(self) -> Path:
        """The folder for temporary files."""
        return self.root / STATE

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically."""
        draft = self.scratch / f"{secrets.token_hex(8)}.draft"
        try:
            draft.write_bytes(data)
            os.replace(draft, self.root / name)
        except OSError as error:
            error.filename = str(self.root / name)  # writing, unlike opening, names no file
            draft.unlink(missing_ok=True)
            raise

    def store(self, name: str, path: Path) -> None:
        """Move a finished file to its place from the folder for temporary files."""
        target = self.root / name
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)

    def defect(self, name: str, entry: ShardEntry) -> str | None:
        """Return the defect of a shard's file; None if there is none."""
        path = self.root / name
        try:
            size_bytes, crc32c = path.stat().st_size, file_crc32c(path)
        except OSError as error:
            return f"{path}: {error.strerror}"
        if (size_bytes, crc32c) == (entry.size_bytes, entry.crc32c):
            return None
        return (
            f"{path}: it must have {entry.size_bytes:,} bytes with the checksum {entry.crc32c}, "
            f"and has {size_bytes:,} with {crc32c}"
        )

    def clear(self) -> None:
        """Remove all files."""
        for name in (DATASET, STATE):
            shutil.rmtree(self.root / name)
            (self.root / name).mkdir()


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A dataset without a manifest at a URL, and a folder for its state; has the methods of `LocalPlace`."""

    dataset: RemoteFolder
    state: RemoteFolder

    @property
    def scratch(self) -> None:
        """None: temporary files go to the system's temporary folder."""
        return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        folder, file = self._at(name)
        try:
            return folder.read(file)
        except RemoteMissingError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file."""
        folder, file = self._at(name)
        folder.write(file, data)

    def store(self, name: str, path: Path) -> None:
        """Upload a finished file, and remove it here."""
        folder, file = self._at(name)
        folder.upload(file, path)
        path.unlink()

    def defect(self, name: str, entry: ShardEntry) -> str | None:
        """Return the defect of a shard's file, judged by its size alone; None if there is none."""
        folder, file = self._at(name)
        try:
            size_bytes = folder.stat(file).size_bytes
        except RemoteMissingError as error:
            return str(error)
        if size_bytes in (None, entry.size_bytes):
            return None
        return f"{folder / file}: it must have {entry.size_bytes:,} bytes, and has {size_bytes:,}"

    def clear(self) -> None:
        """Remove all files that packing makes."""
        for folder in (self.dataset, *split_folders(self.dataset)):
            for name in folder.names():
                if is_own_name(name):
                    folder.remove(name)
        self.state.clear()

    def _at(self, name: str) -> tuple[RemoteFolder, str]:
        """Return the folder of a file, and its name there."""
        area, _, file = name.partition("/")
        return (self.dataset if area == DATASET else self.state), file


Place = LocalPlace | RemotePlace


def split_folders(dataset: RemoteFolder) -> list[RemoteFolder]:
    """Return the folders of splits in a folder at a URL."""
    names = (name for name in dataset.names() if name.endswith(".fl"))
    return [RemoteFolder(dataset / name, dataset.storage_options, dataset.timeout_s) for name in names]
