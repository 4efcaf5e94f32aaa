"""Storage of an unfinished dataset (DATASET) and of its state (STATE), on this machine or at a URL.

Only a packed dataset is ever replaced, and never the source. One packing process locks a staging folder, or
those that pack parts share the lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fastload.errors import DestinationError, RemoteMissingError
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import MANIFEST_NAME, ShardEntry, is_own_name, is_packed, packed_splits
from fastload.shards.remote import RemoteFolder, is_url

DATASET, STATE = "dataset", "state"

# On some cluster file systems (Lustre mounted without "flock"), no file can be locked.
_CANNOT_LOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})

# fcntl's locks only exclude other processes; this set prevents a second packing within the same process.
_locked_here: set[Path] = set()
_locking = threading.Lock()


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
            size_bytes = folder.size_of(file)
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


def check_apart(source: object, dest: str | os.PathLike[str]) -> None:
    """Raise DestinationError if the source or the destination contains the other.

    Packing would read its own output, or replace the source.
    """
    if not isinstance(source, str | os.PathLike) or is_url(dest):
        return
    destination = os.path.abspath(os.path.expanduser(dest))
    origin, target = os.path.realpath(os.path.expanduser(source)), os.path.realpath(destination)
    if target == origin or (os.path.isdir(origin) and target.startswith(origin + os.sep)):
        raise DestinationError(
            f"{destination}: is inside the source {os.fspath(source)}: choose a destination outside of it"
        )
    if origin.startswith(target + os.sep):
        raise DestinationError(
            f"{destination}: holds the source {os.fspath(source)}: choose another destination"
        )


def check_replaceable(destination: Path, overwrite: bool) -> None:
    """Raise DestinationError if the destination exists and may not be replaced."""
    if not os.path.lexists(destination):
        return
    if not overwrite:
        raise exists_already(destination)
    if destination.is_symlink() or not (is_packed(destination) or packed_splits(destination)):
        raise DestinationError(
            f"{destination}: is not a packed dataset, so --overwrite does not replace it: "
            "choose another destination, or remove it yourself"
        )
    for path in sorted(destination.rglob("*")):
        is_file = path.is_symlink() or not path.is_dir()
        is_own = is_own_name(path.name) if is_file else is_packed(path)
        if not is_own:
            raise DestinationError(
                f"{destination}: also holds {str(path.relative_to(destination))!r}, which packing did not "
                "make and does not delete: move it away first"
            )


def check_remote_replaceable(destination: RemoteFolder, overwrite: bool, own: str) -> bool:
    """Raise DestinationError if a URL holds files that may not be replaced; those in the folder `own` may.

    Returns:
        True if packing was interrupted while it wrote the manifests: `own` is still there. Only the same
        job may then continue.
    """
    splits = split_folders(destination)
    names = {folder.url: folder.names() for folder in (destination, *splits)}
    is_published = not overwrite and any(MANIFEST_NAME in each for each in names.values())
    if is_published and own not in names[destination.url]:
        raise exists_already(destination)
    allowed = {own, *(split.url.rpartition("/")[2] for split in splits)}
    for url, each in names.items():
        for name in each:
            if name not in allowed and not is_own_name(name):
                raise DestinationError(
                    f"{destination}: also holds {url}/{name}, which packing did not make and does not "
                    "delete: choose another destination, or move it away first"
                )
    return is_published


def exists_already(destination: Path | RemoteFolder) -> DestinationError:
    """Return the error for a destination that holds a dataset."""
    return DestinationError(
        f"{destination}: exists already: choose another destination, or --overwrite to replace it"
    )


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(folder: Path, destination: Path, *, is_shared: bool) -> Iterator[None]:
    """Make a staging folder, and hold its lock; afterwards, remove the folder if it is empty and not shared.

    filelock is not used because forked workers would inherit its flock, and may outlive a killed run. Raises
    DestinationError if another run holds the lock.
    """
    with _locking:
        if folder in _locked_here:
            raise DestinationError(f"{destination}: this process is packing to it already")
        _locked_here.add(folder)
    try:
        with _open_locked(folder, destination, is_shared) as file:
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # a leftover must not turn success into failure
                    if not is_shared and os.listdir(folder) == [os.path.basename(file.name)]:
                        os.unlink(file.name)
                        folder.rmdir()
    finally:
        _locked_here.discard(folder)


def _open_locked(folder: Path, destination: Path, is_shared: bool) -> BinaryIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / "lock", "a+b", buffering=0)  # noqa: SIM115 - held until the packing ends
        except FileNotFoundError:
            continue  # the process that held the lock has just removed the folder
        if fcntl is not None:
            try:
                fcntl.lockf(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _CANNOT_LOCK:
                    file.close()
                    raise DestinationError(
                        f"{destination}: another process is packing to it: wait for it to end, or choose "
                        "another destination"
                    ) from error
        # The lock is valid only if its file is still at the path: the previous holder may have removed it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                return file
        file.close()
