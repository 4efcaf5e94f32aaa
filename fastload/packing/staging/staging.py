"""Staging of a packed dataset until it is complete, and the state from which packing is resumed.

The destination `photos.fl` has a staging folder beside it, `.photos.fl.partial`, with

    lock       held by the packing process, or shared by the processes that pack parts
    dataset/   the dataset, renamed to the destination once everything is written
    state/     the job, its partition, an entry for each finished shard, and the drafts of the unfinished ones

At a URL, where nothing can be renamed or locked, shards are written to their final place, and the manifest
last; the state is in the folder `.partial` inside the destination.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from fastload.errors import DestinationError, FormatError, OptionError, PackError
from fastload.packing.encoding.assemble import Partition
from fastload.packing.result import PackedSplit
from fastload.packing.staging.journal import JOB, Journal, folder_of
from fastload.packing.staging.places import (
    STATE,
    LocalPlace,
    Place,
    RemotePlace,
    check_remote_replaceable,
    check_replaceable,
    exists_already,
    locked,
)
from fastload.shards.manifest import MANIFEST_NAME, Manifest
from fastload.shards.remote import RemoteFolder, is_url
from fastload.system.folders import fsync_folder, replace_folder

_REMOTE_STATE = ".partial"
_PARTS = f"{STATE}/parts"  # an empty file, if parts were packed


class Staging(contextlib.ExitStack):
    """The unfinished dataset of one packing job, used as a context manager."""

    place: Place
    destination: Path | RemoteFolder
    _journal: Journal
    _state_folder: str  # a path or a URL, for messages

    def __init__(self, overwrite: bool, is_part: bool) -> None:
        super().__init__()
        self._overwrite = overwrite
        self._is_part = is_part
        self._can_be_resumed = True

    def begin(self, job: str | None) -> Journal:
        """Begin a job, and remove the files of any other job.

        `job` describes everything that determines the output's bytes; None stands for a job that cannot be
        resumed, and differs from every other. Raises DestinationError if parts of another job were packed:
        others may be running.
        """
        described = (job or json.dumps({"run": secrets.token_hex(16)})).encode()
        old = self.place.read(JOB)
        if old != described:
            if old is not None and (self._is_part or self.place.read(_PARTS) is not None):
                raise self._other_parts(old, described)
            if not self._is_part:
                self.place.clear()
            self.place.write(JOB, described)
        if self._is_part:
            self.place.write(_PARTS, b"")
        self._can_be_resumed = job is not None
        return self._journal_of(described)

    def save_partition(self, partition: Partition) -> None:
        """Save the partition for later runs of the job."""
        self.place.write(self._partition_name, partition.to_json().encode())

    def saved_partition(self) -> Partition | None:
        """Return the partition of an earlier run of the job."""
        data = self.place.read(self._partition_name)
        return None if data is None else Partition.from_json(data, str(self.destination))

    def resume(self) -> tuple[Journal, Partition]:
        """Return the journal and partition of the job begun here; raise FormatError if there is none."""
        journal = self._journal_of(self.place.read(JOB) or b"")
        partition = self.saved_partition()
        if partition is None:
            raise FormatError(
                f"{self.destination}: no part of it has been packed: "
                f"'fastload pack SOURCE {self.destination} --part 1/2' packs the first half"
            )
        return journal, partition

    def publish(self, manifests: Mapping[str, Manifest]) -> None:
        """Make the dataset readable at the destination, and remove the rest."""
        self._journal.require_current()
        for split, manifest in manifests.items():
            self.place.write(f"{folder_of(split)}/{MANIFEST_NAME}", manifest.to_bytes())

    def packed(self, manifests: Mapping[str, Manifest]) -> tuple[PackedSplit, ...]:
        """Return a description of each split, from its manifest."""
        return tuple(
            PackedSplit(
                self._path(split),
                manifest.records,
                manifest.size_bytes,
                manifest.skipped,
                manifest.kept,
                manifest.image_shape,
                manifest.left_out,
                manifest.image is not None,
                any(field.is_of_objects for field in manifest.fields),
            )
            for split, manifest in manifests.items()
        )

    def _path(self, split: str) -> Path | str:
        path = self.destination / f"{split}.fl" if split else self.destination
        return path if isinstance(path, Path) else str(path)

    def _journal_of(self, job: bytes) -> Journal:
        self._journal = Journal(self.place, hashlib.sha256(job).hexdigest(), str(self.destination))
        return self._journal

    @property
    def _partition_name(self) -> str:
        # Named after the job, so that parts of two jobs that begin at once do not use each other's partition.
        return f"{STATE}/{self._journal.job}.partition.json"

    def _other_parts(self, old_job: bytes, job: bytes) -> DestinationError:
        """Return the error for a job that is not that of the parts that were packed."""
        old, new = json.loads(old_job), json.loads(job)
        reason = "from another source, or before this one changed"
        made = zip(old.get("made", {}).values(), new.get("made", {}).values(), strict=False)
        for was, now in (*made, (old.get("options", {}), new.get("options", {}))):
            for name in sorted(was.keys() | now.keys()):
                if was.get(name) != now.get(name):
                    reason = f"with {name} {was.get(name)!r}, and this one has {now.get(name)!r}"
        return DestinationError(
            f"{self.destination}: its parts were packed {reason}: pack all parts alike, or remove "
            f"{self._state_folder} to begin again"
        )


def staging_for(
    dest: str | os.PathLike[str],
    overwrite: bool,
    *,
    is_part: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> Staging:
    """Return the staging of a destination, a path or a URL."""
    if is_url(dest):
        if is_part and overwrite:
            raise OptionError(
                f"{dest}: parts at a URL cannot replace a dataset: remove it, and leave out --overwrite"
            )
        return _RemoteStaging(RemoteFolder(str(dest), storage_options), overwrite, is_part)
    return LocalStaging(Path(os.path.abspath(os.path.expanduser(dest))), overwrite, is_part)


class LocalStaging(Staging):
    """The staging folder beside a destination, locked until its context ends."""

    destination: Path
    place: LocalPlace

    def __init__(self, destination: Path, overwrite: bool, is_part: bool = False) -> None:
        super().__init__(overwrite, is_part)
        # Only the parent is resolved: a destination that is a link must not redirect the rename.
        self.destination = destination.parent.resolve() / destination.name
        check_replaceable(self.destination, overwrite)
        self._root = self.destination.with_name(f".{self.destination.name}.partial")
        self._dataset = self._root / "dataset"
        self._state = self._root / "state"
        self._state_folder = str(self._root)
        self.place = LocalPlace(self._root)

    def __enter__(self) -> LocalStaging:
        try:
            self.enter_context(locked(self._root, self.destination, is_shared=self._is_part))
            self.callback(self._remove_unfinished)
            # The previous holder of the lock may have published a moment ago.
            check_replaceable(self.destination, self._overwrite)
            self._dataset.mkdir(exist_ok=True)
            self._state.mkdir(exist_ok=True)
        except BaseException as error:
            self.close()
            if isinstance(error, DestinationError) or not isinstance(error, OSError):
                raise
            raise PackError(
                f"{self._root}: cannot be created ({error.strerror}): choose a destination in a folder "
                "that can be written to"
            ) from error
        return self

    def begin(self, job: str | None) -> Journal:
        """Begin a job, and remove the files of any other job and what an earlier run left unfinished."""
        journal = super().begin(job)
        if not self._is_part:
            self._remove_drafts()
        return journal

    def publish(self, manifests: Mapping[str, Manifest]) -> None:
        """Move the dataset to the destination in one step unless something is there, and remove the rest."""
        super().publish(manifests)
        _fsync_manifests(self._dataset)
        if os.path.lexists(self.destination):
            check_replaceable(self.destination, self._overwrite)
            replace_folder(self._dataset, self.destination)
        else:
            os.rename(self._dataset, self.destination)
        shutil.rmtree(self._state)
        fsync_folder(self.destination.parent)

    def _remove_unfinished(self) -> None:
        """Remove everything but the finished shards of a job that can be resumed."""
        if self._is_part:
            return  # other parts may be running
        has_job = self._can_be_resumed and self.place.read(JOB) is not None
        if has_job and any(self._state.glob("*.finished.json")):
            self._remove_drafts()
            return
        for folder in (self._dataset, self._state):
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_drafts(self) -> None:
        for drafts in self._state.glob("*draft*"):
            if drafts.is_dir():
                shutil.rmtree(drafts, ignore_errors=True)
            else:
                drafts.unlink(missing_ok=True)


class _RemoteStaging(Staging):
    """The staging of a dataset at a URL."""

    destination: RemoteFolder
    place: RemotePlace

    def __init__(self, destination: RemoteFolder, overwrite: bool, is_part: bool) -> None:
        super().__init__(overwrite, is_part)
        self.destination = destination
        state = RemoteFolder(destination / _REMOTE_STATE, destination.storage_options, destination.timeout_s)
        self._state_folder = state.url
        self.place = RemotePlace(destination, state)

    def __enter__(self) -> _RemoteStaging:
        self._is_published = check_remote_replaceable(self.destination, self._overwrite, _REMOTE_STATE)
        return self

    def begin(self, job: str | None) -> Journal:
        if self._is_published and (job is None or self.place.read(JOB) != job.encode()):
            raise exists_already(self.destination)
        return super().begin(job)

    def publish(self, manifests: Mapping[str, Manifest]) -> None:
        super().publish(manifests)
        self.place.state.clear()


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
