"""Storage of an unfinished dataset, on this machine or at a URL, until it appears at the destination.

The destination `photos.fl` has a staging folder beside it, `.photos.fl.partial`, with

    lock       held by the packing process, or shared by the processes that pack parts
    dataset/   the dataset, renamed to the destination once everything is written
    state/     the job, its partition, an entry for each finished shard, and the drafts of the unfinished ones

At a URL, where nothing can be renamed or locked, shards are written to their final place, and the manifest
last; the state is in the folder `.partial` inside the destination. Only a packed dataset is ever replaced.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import DestinationError, RemoteMissingError
from fastload.packing.staging.locking import locked
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import MANIFEST_NAME, ShardEntry, is_own_name, is_packed, packed_splits
from fastload.shards.remote import RemoteFolder
from fastload.system.folders import fsync_folder, replace_folder
from fastload.system.units import format_size

DATASET, STATE = "dataset", "state"

_REMOTE_STATE = ".partial"

# The share by which shards may be smaller than predicted from the sizes of 64 records (see SAMPLE_RECORDS).
_SIZE_ERROR = 0.1


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A destination on this machine, or on a file system that several share, with its staging folder."""

    destination: Path
    overwrite: bool

    @property
    def folder(self) -> Path:
        """The staging folder."""
        return self.destination.with_name(f".{self.destination.name}.partial")

    @property
    def scratch(self) -> Path:
        """The folder for temporary files."""
        return self.folder / STATE

    @property
    def disk(self) -> str:
        """The path by which a message names the disk of the temporary files."""
        return str(self.destination)

    def lack_of_space(self, predicted_bytes: int) -> str:
        """Return a sentence on the space that shards of a predicted size lack; "" if they fit."""
        usage = shutil.disk_usage(self.folder)
        # Some network file systems report zeros.
        if not usage.total or predicted_bytes * (1 - _SIZE_ERROR) <= usage.free:
            return ""
        return (
            f"{self.destination}: about {format_size(predicted_bytes)} are to be packed, and its disk has "
            f"{format_size(usage.free)} free: free {format_size(predicted_bytes - usage.free)}, choose "
            "another disk, or make it smaller (--encode jpeg, --max-side)"
        )

    @contextlib.contextmanager
    def held(self, is_part: bool) -> Iterator[bool]:
        """Make the staging folder, and hold its lock, in a block with False: nothing is published yet.

        Raises DestinationError if the destination may not be replaced, or is being packed to.
        """
        self._check_replaceable()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder, self.destination, is_shared=is_part))
                self._check_replaceable()  # the previous holder of the lock may have published a moment ago
                for name in (DATASET, STATE):
                    (self.folder / name).mkdir(exist_ok=True)
            except DestinationError:
                raise
            except OSError as error:
                raise DestinationError(
                    f"{self.destination}: cannot be created ({error.strerror}): choose a destination in a "
                    "folder that can be written to"
                ) from error
            if not is_part:  # what a killed run left
                for draft in self.scratch.glob("*draft*"):
                    if draft.is_dir():
                        shutil.rmtree(draft, ignore_errors=True)
                    else:
                        draft.unlink(missing_ok=True)
            yield False

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically."""
        draft = self.scratch / f"{secrets.token_hex(8)}.draft"
        try:
            draft.write_bytes(data)
            os.replace(draft, self.folder / name)
        except OSError as error:
            error.filename = str(self.folder / name)  # writing, unlike opening, names no file
            draft.unlink(missing_ok=True)
            raise

    def store(self, name: str, path: Path) -> None:
        """Move a finished file to its place from the folder for temporary files."""
        target = self.folder / name
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)

    def defect(self, name: str, entry: ShardEntry) -> str | None:
        """Return the defect of a shard's file; None if there is none."""
        path = self.folder / name
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
            shutil.rmtree(self.folder / name)
            (self.folder / name).mkdir()

    def discard(self, keeps_finished: bool) -> None:
        """Remove all files, unless there are finished shards and these are to be kept."""
        if not (keeps_finished and any(self.scratch.glob("*.finished.json"))):
            for name in (DATASET, STATE):
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def publish(self) -> None:
        """Move the dataset, whose manifests are written, to the destination in one step; remove the state."""
        dataset = self.folder / DATASET
        _fsync_manifests(dataset)
        if os.path.lexists(self.destination):
            self._check_replaceable()
            replace_folder(dataset, self.destination)
        else:
            os.rename(dataset, self.destination)
        shutil.rmtree(self.scratch)
        fsync_folder(self.destination.parent)

    def _check_replaceable(self) -> None:
        """Raise DestinationError if the destination exists and may not be replaced."""
        destination = self.destination
        if not os.path.lexists(destination):
            return
        if not self.overwrite:
            raise exists_already(destination)
        if destination.is_symlink() or not (is_packed(destination) or packed_splits(destination)):
            raise DestinationError(
                f"{destination}: is not a packed dataset, so --overwrite does not replace it: "
                "choose another destination, or remove it yourself"
            )
        for path in sorted(destination.rglob("*")):
            is_file = path.is_symlink() or not path.is_dir()
            is_made_here = is_own_name(path.name) if is_file else is_packed(path)
            if not is_made_here:
                raise _holds_others(destination, path.relative_to(destination))


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A destination at a URL, with the folder for its state; has the methods of `LocalPlace`."""

    destination: RemoteFolder
    overwrite: bool

    @property
    def folder(self) -> RemoteFolder:
        """The folder for the state."""
        return _inside(self.destination, _REMOTE_STATE)

    @property
    def scratch(self) -> None:
        """None: temporary files go to the system's temporary folder."""
        return None

    @property
    def disk(self) -> str:
        """The path by which a message names the disk of the temporary files."""
        return tempfile.gettempdir()

    def lack_of_space(self, predicted_bytes: int) -> str:
        """Return "": a server does not say how much space is free."""
        return ""

    @contextlib.contextmanager
    def held(self, is_part: bool) -> Iterator[bool]:
        """Run a block with True if a run was interrupted while it wrote the manifests; nothing is locked.

        Then the state is still there, and only the same job may continue. Raises DestinationError if there
        are files that may not be replaced.
        """
        destination, folders = self.destination, self._splits()
        names = {folder.url: folder.names() for folder in (destination, *folders)}
        is_published = not self.overwrite and any(MANIFEST_NAME in each for each in names.values())
        if is_published and _REMOTE_STATE not in names[destination.url]:
            raise exists_already(destination)
        allowed = {_REMOTE_STATE, *(folder.url.rpartition("/")[2] for folder in folders)}
        for url, each in names.items():
            for name in each:
                if name not in allowed and not is_own_name(name):
                    raise _holds_others(destination, f"{url}/{name}")
        yield is_published

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
            size_bytes = folder.size_of(file)
        except RemoteMissingError as error:
            return str(error)
        if size_bytes in (None, entry.size_bytes):
            return None
        return f"{folder / file}: it must have {entry.size_bytes:,} bytes, and has {size_bytes:,}"

    def clear(self) -> None:
        """Remove all files that packing makes."""
        for folder in (self.destination, *self._splits()):
            for name in folder.names():
                if is_own_name(name):
                    folder.remove(name)
        self.folder.clear()

    def discard(self, keeps_finished: bool) -> None:
        """Leave all files to the next run: without a manifest, they are no dataset."""

    def publish(self) -> None:
        """Remove the state: with the manifests, the dataset is complete."""
        self.folder.clear()

    def _splits(self) -> list[RemoteFolder]:
        names = (name for name in self.destination.names() if name.endswith(".fl"))
        return [_inside(self.destination, name) for name in names]

    def _at(self, name: str) -> tuple[RemoteFolder, str]:
        """Return the folder of a file, and its name there."""
        area, _, file = name.partition("/")
        return (self.destination if area == DATASET else self.folder), file


Place = LocalPlace | RemotePlace


def _inside(folder: RemoteFolder, name: str) -> RemoteFolder:
    return RemoteFolder(folder / name, folder.storage_options, folder.timeout_s)


def exists_already(destination: Path | RemoteFolder) -> DestinationError:
    """Return the error for a destination that holds a dataset."""
    return DestinationError(
        f"{destination}: exists already: choose another destination, or --overwrite to replace it"
    )


def _holds_others(destination: Path | RemoteFolder, name: Path | str) -> DestinationError:
    return DestinationError(
        f"{destination}: also holds {str(name)!r}, which packing did not make and does not delete: "
        "choose another destination, or move it away first"
    )


def _fsync_manifests(folder: Path) -> None:
    """Flush manifests and folders to the disk, but not shards.

    The kernel writes shards when it chooses, as with tar and cp: waiting for that would triple the time of
    packing with `keep`. If the power fails before then, the checksums in the manifest show which shards are
    incomplete.
    """
    for manifest in folder.rglob(MANIFEST_NAME):
        with manifest.open("rb") as file:
            os.fsync(file.fileno())
        fsync_folder(manifest.parent)
    fsync_folder(folder)
