"""Staging folder: a packed dataset until it is complete, and the state from which packing is resumed.

The destination `photos.fl` has a staging folder beside it, `.photos.fl.partial`, with

    lock       held by the packing process
    dataset/   becomes the destination, by one rename, when everything is written
    state/     the job, an entry for each finished shard, and the drafts of the unfinished ones

A shard is finished once its entry in state/ exists; the entry is written last.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from fastload.errors import DestinationError, PackError
from fastload.packing._assemble import FinishedShard
from fastload.packing._chunk import Failure
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import MANIFEST_NAME, ShardEntry, is_packed, is_shard_name, packed_splits
from fastload.system.folders import fsync_folder, replace_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ENTRY_SUFFIX = ".finished.json"

# fcntl's locks work between processes; within one process, this set prevents a second packing.
_locked_here: set[Path] = set()
_locking = threading.Lock()


class Staging:
    """The staging folder of one packing job, locked while it is used as a context."""

    def __init__(self, destination: Path, overwrite: bool) -> None:
        # Not resolved as a whole: a destination that is a link must not redirect the rename.
        self.destination = destination.parent.resolve() / destination.name
        self._overwrite = overwrite
        _check_replaceable(self.destination, overwrite)
        self._root = self.destination.with_name(f".{self.destination.name}.partial")
        self._dataset = self._root / "dataset"
        self._state = self._root / "state"
        self._job = self._state / "job.json"
        # For payloads and temporary files. Each run has its own folder, because a worker of a killed run may
        # live a moment longer, and must not write into this run's files.
        self.drafts = self._state / f"drafts-{secrets.token_hex(4)}"

    def __enter__(self) -> Staging:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(_locked(self._root, self.destination))
                stack.callback(self._remove_unfinished)
                # The previous holder of the lock may have published a moment ago.
                _check_replaceable(self.destination, self._overwrite)
                self._dataset.mkdir(exist_ok=True)
                self._state.mkdir(exist_ok=True)
            except DestinationError:
                raise
            except OSError as error:
                raise PackError(
                    f"{self._root}: cannot be created ({error.strerror}): choose a destination in a folder "
                    "that can be written to"
                ) from error
            self._release = stack.pop_all().close
        return self

    def __exit__(self, *exception: object) -> None:
        self._release()

    def _remove_unfinished(self) -> None:
        """Remove everything but the finished shards of a job that can be resumed."""
        is_resumable = self._job.exists() and any(self._state.glob(f"*{_ENTRY_SUFFIX}"))
        for folder in [self.drafts] if is_resumable else [self._dataset, self._state]:
            shutil.rmtree(folder, ignore_errors=True)

    def folder(self, split: str) -> Path:
        """Return the folder of a split's shards."""
        return self._dataset / f"{split}.fl" if split else self._dataset

    def begin(self, job: str | None) -> None:
        """Prepare for a job, described by everything that decides its bytes, and remove the files of another.

        None describes a job that cannot be resumed.
        """
        if job is None or not self._job.exists() or self._job.read_text() != job:
            for folder in (self._dataset, self._state):
                shutil.rmtree(folder)
                folder.mkdir()
            if job is not None:
                _write_atomically(self._job, job)
        for drafts in self._state.glob("drafts-*"):
            shutil.rmtree(drafts, ignore_errors=True)
        self.drafts.mkdir()

    def resume(self, split: str) -> list[FinishedShard]:
        """Return the intact shards of a split that an earlier run finished; remove everything else of it."""
        folder = self.folder(split)
        folder.mkdir(exist_ok=True)
        shards: list[FinishedShard] = []
        while (shard := self._read_finished(split, len(shards))) is not None:
            shards.append(shard)
        wanted = {shard.entry.file for shard in shards}
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink()
        return shards

    def note_finished(self, split: str, number: int, shard: FinishedShard) -> None:
        """Record that a shard is finished, so that a resumed run keeps it."""
        _write_atomically(self._entry_path(split, number), json.dumps(asdict(shard)))

    def publish(self) -> None:
        """Move the dataset to the destination in one step unless something is there, and remove the rest."""
        _fsync_manifests(self._dataset)
        if os.path.lexists(self.destination):
            _check_replaceable(self.destination, self._overwrite)
            replace_folder(self._dataset, self.destination)
        else:
            os.rename(self._dataset, self.destination)
        shutil.rmtree(self._state)
        fsync_folder(self.destination.parent)

    def _entry_path(self, split: str, number: int) -> Path:
        return self._state / f"{split or 'all'}-{number:05d}{_ENTRY_SUFFIX}"

    def _read_finished(self, split: str, number: int) -> FinishedShard | None:
        """Return a finished shard if its entry is there and its file is intact."""
        try:
            content = json.loads(self._entry_path(split, number).read_text())
            entry = ShardEntry(**content["entry"])
            shard = self.folder(split) / entry.file
            if shard.stat().st_size != entry.size_bytes or file_crc32c(shard) != entry.crc32c:
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        shape = content["image_shape"]
        return FinishedShard(
            entry,
            content["next_index"],
            None if shape is None else (shape[0], shape[1], shape[2]),
            tuple(Failure(**failure) for failure in content["failures"]),
        )


@contextlib.contextmanager
def _locked(folder: Path, destination: Path) -> Iterator[None]:
    """Make a staging folder, and hold its lock; remove the folder afterwards if nothing else is in it.

    Not filelock: forked workers inherit its flock, and may outlive a killed run. Raises DestinationError if
    another run holds the lock.
    """
    with _locking:
        if folder in _locked_here:
            raise DestinationError(f"{destination}: this process is packing to it already")
        _locked_here.add(folder)
    try:
        with _open_locked(folder, destination) as file:
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # a leftover must not turn success into failure
                    if os.listdir(folder) == [os.path.basename(file.name)]:
                        os.unlink(file.name)
                        folder.rmdir()
    finally:
        _locked_here.discard(folder)


def _open_locked(folder: Path, destination: Path) -> BinaryIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / "lock", "a+b", buffering=0)  # noqa: SIM115 - held until the packing ends
        except FileNotFoundError:
            continue  # the process that held the lock has just removed the folder
        if fcntl is not None:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.close()
                raise DestinationError(
                    f"{destination}: another process is packing to it: wait for it to end, or choose "
                    "another destination"
                ) from error
        # The lock counts only if its file is still at the path: the previous holder may have removed it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):
                return file
        file.close()


def _write_atomically(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    os.replace(draft, path)


def check_apart(source: Any, destination: Path) -> None:
    """Raise DestinationError if one contains the other: packing would read its output or remove its input."""
    if not isinstance(source, str | os.PathLike):
        return
    origin, target = os.path.realpath(os.path.expanduser(source)), os.path.realpath(destination)
    if target == origin or (os.path.isdir(origin) and target.startswith(origin + os.sep)):
        raise DestinationError(
            f"{destination}: is inside the source {os.fspath(source)}: choose a destination outside of it"
        )
    if origin.startswith(target + os.sep):
        raise DestinationError(
            f"{destination}: holds the source {os.fspath(source)}: choose another destination"
        )


def _check_replaceable(destination: Path, overwrite: bool) -> None:
    """Raise DestinationError if something at the destination may not be replaced."""
    if not os.path.lexists(destination):
        return
    if not overwrite:
        raise DestinationError(
            f"{destination}: exists already: choose another destination, or --overwrite to replace it"
        )
    if destination.is_symlink() or not (is_packed(destination) or packed_splits(destination)):
        raise DestinationError(
            f"{destination}: is not a packed dataset, so --overwrite does not replace it: "
            "choose another destination, or remove it yourself"
        )
    for path in sorted(destination.rglob("*")):
        is_file = path.is_symlink() or not path.is_dir()
        is_own = path.name == MANIFEST_NAME or is_shard_name(path.name) if is_file else is_packed(path)
        if not is_own:
            raise DestinationError(
                f"{destination}: also holds {str(path.relative_to(destination))!r}, which packing did not "
                "make and does not delete: move it away first"
            )


def _fsync_manifests(folder: Path) -> None:
    """Flush manifests and folders to the disk, not shards.

    The kernel writes shards when it chooses, as with tar and cp: waiting for that would triple the time of
    `keep`. If the power fails before, the checksums in the manifest show which shards are incomplete.
    """
    for manifest in folder.rglob(MANIFEST_NAME):
        with manifest.open("rb") as file:
            os.fsync(file.fileno())
        fsync_folder(manifest.parent)
    fsync_folder(folder)
