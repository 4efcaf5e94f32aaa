"""The folder in which a packed dataset grows until it is whole, and how a killed packing resumes.

Beside the destination `photos.fl` lies `.photos.fl.partial` with

    lock       held by the packing process, says who it is
    dataset/   becomes the destination, by one rename, when everything is written
    state/     what was packed how, which shards are finished, drafts of unfinished ones, their journal

A shard counts as finished when its entry in state/ is there; the entry is written last.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from fastload.errors import DestinationError, PackError
from fastload.packing.assemble import FinishedShard
from fastload.packing.journal import PIECE_SUFFIX
from fastload.packing.piece import Failure
from fastload.shards.checksum import file_crc32c
from fastload.shards.manifest import MANIFEST_NAME, ShardEntry, is_packed, is_shard_name, packed_splits
from fastload.system.folders import fsync_folder, replace_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_ENTRY_SUFFIX = ".finished.json"

# fcntl's locks hold between processes; within one, this set does.
_locked_here: set[Path] = set()
_locking = threading.Lock()


class Staging:
    """The place of one packing, locked while it is used as a context.

    Args:
        destination: Where the dataset is to appear.
        overwrite: Whether a packed dataset that is there already is to be replaced.

    Raises:
        DestinationError: The destination exists and may not be replaced, or another process is
            packing to it.
        PackError: The destination's folder cannot be written to.
    """

    def __init__(self, destination: Path, overwrite: bool) -> None:
        # Not resolved as a whole: a destination that is a link must not redirect the rename.
        self.destination = destination.parent.resolve() / destination.name
        self._overwrite = overwrite
        _check_replaceable(self.destination, overwrite)
        self._root = self.destination.with_name(f".{self.destination.name}.partial")
        self.dataset = self._root / "dataset"
        self.state = self._root / "state"
        self._lock: Any = None

    def __enter__(self) -> Staging:
        try:
            self._lock = _take_lock(self._root, self.destination)
            try:
                # Whoever held the lock before may have published what was not there a moment ago.
                _check_replaceable(self.destination, self._overwrite)
                self.dataset.mkdir(exist_ok=True)
                self.state.mkdir(exist_ok=True)
            except OSError:
                _release_lock(self._root, self._lock)
                raise
        except DestinationError:
            raise
        except OSError as error:
            raise PackError(
                f"{self._root}: cannot be made ({error.strerror}): choose a destination in a folder "
                "that can be written to"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tidy()
        _release_lock(self._root, self._lock)

    def _tidy(self) -> None:
        """Removes everything, where there is nothing that a later run could use."""
        if any(self.state.glob(f"*{_ENTRY_SUFFIX}")) or any(self.drafts.glob(f"*{PIECE_SUFFIX}")):
            return
        for folder in (self.dataset, self.state):
            shutil.rmtree(folder, ignore_errors=True)

    def begin(self, job: dict[str, Any]) -> None:
        """Makes ready for a job; clears away what another job, or another state of the source, left.

        Args:
            job: Everything that decides the output's bytes.
        """
        path = self.state / "job.json"
        wanted = json.dumps(job, sort_keys=True)
        try:
            resumes = path.read_text() == wanted
        except OSError:
            resumes = False
        if not resumes:
            for folder in (self.dataset, self.state):
                shutil.rmtree(folder)
                folder.mkdir()
            _write_atomically(path, wanted)
        self.drafts.mkdir(exist_ok=True)

    def finished(self, split: str, folder: Path) -> list[FinishedShard]:
        """The shards of a split that an earlier run finished, checked."""
        shards: list[FinishedShard] = []
        while (shard := _read_finished(self._entry_path(split, len(shards)), folder)) is not None:
            shards.append(shard)
        return shards

    def clear(self, folder: Path, finished: Sequence[FinishedShard]) -> None:
        """Removes all but finished shards from a split's folder."""
        wanted = {shard.entry.file for shard in finished}
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink()

    @property
    def drafts(self) -> Path:
        """The folder for what is no finished shard: payloads, the journal, temporary files."""
        return self.state / "drafts"

    def note_finished(self, split: str, number: int, shard: FinishedShard) -> None:
        """Notes that a shard is finished: from here on, a resumed packing does not make it again."""
        _write_atomically(self._entry_path(split, number), json.dumps(asdict(shard)))

    def publish(self) -> None:
        """Makes the dataset appear at the destination, in one step, and removes the rest.

        Raises:
            DestinationError: Something else appeared there meanwhile.
        """
        _fsync_manifests(self.dataset)
        if os.path.lexists(self.destination):
            _check_replaceable(self.destination, self._overwrite)
            replace_folder(self.dataset, self.destination)
        else:
            os.rename(self.dataset, self.destination)
        shutil.rmtree(self.state)
        fsync_folder(self.destination.parent)

    def _entry_path(self, split: str, number: int) -> Path:
        return self.state / f"{split or 'all'}-{number:05d}{_ENTRY_SUFFIX}"


def check_apart(source: Any, destination: Path) -> None:
    """Checks that neither lies in the other: packing would read what it writes, or replace what it reads.

    Raises:
        DestinationError: One does.
    """
    if not isinstance(source, str | os.PathLike):
        return
    origin, target = os.path.realpath(os.path.expanduser(source)), os.path.realpath(destination)
    folder = origin if os.path.isdir(origin) else os.path.dirname(origin)
    if target == origin or (os.path.isdir(origin) and target.startswith(folder + os.sep)):
        raise DestinationError(
            f"{destination}: lies in the source {os.fspath(source)}: choose a destination outside of it"
        )
    if origin.startswith(target + os.sep):
        raise DestinationError(
            f"{destination}: holds the source {os.fspath(source)}: choose another destination"
        )


def _check_replaceable(destination: Path, overwrite: bool) -> None:
    if not os.path.lexists(destination):
        return
    if not overwrite:
        raise DestinationError(
            f"{destination}: exists already: choose another destination, or --overwrite to replace it"
        )
    is_ours = not destination.is_symlink() and (is_packed(destination) or packed_splits(destination))
    if not is_ours:
        raise DestinationError(
            f"{destination}: is no packed dataset, so --overwrite does not replace it: "
            "choose another destination, or remove it yourself"
        )
    other = _first_foreign(destination)
    if other is not None:
        raise DestinationError(
            f"{destination}: also holds {str(other.relative_to(destination))!r}, which is not ours to "
            "delete: move it away first"
        )


def _first_foreign(folder: Path) -> Path | None:
    """Something in a packed dataset, or in a folder of several, that packing did not put there."""
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder and is_packed(path):
            other = _first_foreign(path)
        else:
            is_ours = path.name == MANIFEST_NAME or is_shard_name(path.name)
            other = None if is_ours and not is_folder else path
        if other is not None:
            return other
    return None


def _fsync_manifests(folder: Path) -> None:
    """Writes manifests and folders to the disk, not shards.

    Shards reach it when the kernel finds the time, as with tar and cp: to wait for that would triple the
    time that `keep` takes. Were the power to fail before, the manifest tells what is missing.
    """
    for path in folder.iterdir():
        if path.is_dir():
            _fsync_manifests(path)
        elif path.name == MANIFEST_NAME:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    fsync_folder(folder)


def _read_finished(path: Path, folder: Path) -> FinishedShard | None:
    """The finished shard that an entry describes, if its file is there and whole."""
    try:
        content = json.loads(path.read_text())
        entry = ShardEntry(**content["entry"])
        shard = folder / entry.file
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


def _write_atomically(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text)
    os.replace(draft, path)


def _take_lock(root: Path, destination: Path) -> Any:
    """Locks the staging folder for this process, and says in the lock who that is."""
    with _locking:
        if root in _locked_here:
            raise DestinationError(f"{destination}: this process is packing to it already")
        _locked_here.add(root)
    try:
        file = _locked_file(root, destination)
    except BaseException:
        _locked_here.discard(root)
        raise
    holder = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    with contextlib.suppress(OSError):  # a full disk: the next one to ask is told less, that is all
        file.truncate(0)
        file.write(holder.encode())
    return file


def _locked_file(root: Path, destination: Path) -> Any:
    while True:
        root.mkdir(parents=True, exist_ok=True)
        try:
            file = open(root / "lock", "a+b", buffering=0)  # noqa: SIM115 - held until the packing ends
        except FileNotFoundError:
            continue  # the process that held it has just removed the folder
        if fcntl is not None:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DestinationError(_who_holds(file, destination)) from error
        if _is_current(file, root / "lock"):
            return file
        file.close()


def _is_current(file: Any, path: Path) -> bool:
    """Whether the locked file is still the one at `path`, not one that its holder removed."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _who_holds(file: Any, destination: Path) -> str:
    file.seek(0)
    holder = file.read().decode(errors="replace") or "another process"
    file.close()
    return f"{destination}: {holder} is packing to it: wait for it to end, or choose another destination"


def _release_lock(root: Path, file: Any) -> None:
    """Unlocks; removes the staging folder where nothing is in it that could be resumed."""
    try:
        for name in ("dataset", "state"):
            with contextlib.suppress(FileNotFoundError):
                (root / name).rmdir()
        (root / "lock").unlink()
        root.rmdir()
    except OSError:
        pass  # an unfinished packing, or a leftover that is no reason to fail what has succeeded
    finally:
        file.close()
        _locked_here.discard(root)
