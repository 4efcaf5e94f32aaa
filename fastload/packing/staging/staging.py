"""Staging of a packed dataset until it is complete, and the journal from which packing is resumed.

A shard is finished once its entry, which is written last, exists. Any process can write entries: each is a
separate file, written atomically.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fastload.errors import DamageError, DestinationError, FormatError, OptionError
from fastload.packing.encoding.assemble import FinishedShard, Partition, ShardRange
from fastload.packing.staging.places import DATASET, STATE, LocalPlace, Place, RemotePlace, exists_already
from fastload.shards.manifest import MANIFEST_NAME, Manifest, ShardEntry, Skipped
from fastload.shards.remote import RemoteFolder, is_url

_JOB = f"{STATE}/job.json"
_PARTS = f"{STATE}/parts"  # an empty file, if parts were packed


class Staging(contextlib.ExitStack):
    """The unfinished dataset at a destination, a path or a URL; a context manager, which holds its lock."""

    place: Place

    def __init__(
        self,
        dest: str | os.PathLike[str],
        overwrite: bool,
        *,
        is_part: bool = False,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self._is_part = is_part
        self.is_resumable = True  # False: the job, that of a Python dataset, starts over
        if not is_url(dest):
            path = Path(os.path.abspath(os.path.expanduser(dest)))
            # Only the parent is resolved: a destination that is a link must not redirect the rename.
            self.place = LocalPlace(path.parent.resolve() / path.name, overwrite)
        elif is_part and overwrite:
            raise OptionError(
                f"{dest}: parts at a URL cannot replace a dataset: remove it, and leave out --overwrite"
            )
        else:
            self.place = RemotePlace(RemoteFolder(str(dest), storage_options), overwrite)

    def __enter__(self) -> Staging:
        self._is_published = self.enter_context(self.place.held(self._is_part))
        if not self._is_part:  # otherwise, other parts may be running
            self.callback(lambda: self.place.discard(self.is_resumable))
        return self

    def begin(self, job: str | None) -> Journal:
        """Begin a job, and remove the files of any other job.

        `job` describes everything that determines the output's bytes; None stands for a job that cannot be
        resumed, and differs from every other. Raises DestinationError if parts of another job were packed,
        because others may be running, or if the destination is published.
        """
        described = (job or json.dumps({"run": secrets.token_hex(16)})).encode()
        old = self.place.read(_JOB)
        if old != described:
            if self._is_published:
                raise exists_already(self.place.destination)
            if old is not None and (self._is_part or self.place.read(_PARTS) is not None):
                raise self._other_parts(old, described)
            if not self._is_part:
                self.place.clear()
            self.place.write(_JOB, described)
        if self._is_part:
            self.place.write(_PARTS, b"")
        self.is_resumable = job is not None
        return Journal(self.place, _digest(described))

    def resume(self) -> tuple[Journal, Partition]:
        """Return the journal and partition of the job begun here; raise FormatError if there is none."""
        journal = Journal(self.place, _digest(self.place.read(_JOB)))
        partition = journal.partition()
        if partition is None:
            raise FormatError(
                f"{self.place.destination}: no part of it has been packed: "
                f"'fastload pack SOURCE {self.place.destination} --part 1/2' packs the first half"
            )
        return journal, partition

    def _other_parts(self, old_job: bytes, job: bytes) -> DestinationError:
        """Return the error for a job that is not that of the parts that were packed."""
        old, new = json.loads(old_job), json.loads(job)
        difference = "from another source, or before this source changed"
        # Without these, it is the job of a Python dataset.
        made = zip(old.get("made", {}).values(), new.get("made", {}).values(), strict=False)
        for was, now in (*made, (old.get("options"), new.get("options"))):
            for name in sorted(was.keys() | now.keys()) if was and now else ():
                if was.get(name) != now.get(name):
                    difference = f"with {name} {was.get(name)!r}, not with {now.get(name)!r}"
        return DestinationError(
            f"{self.place.destination}: parts of it were packed {difference}: pack all parts in the same "
            f"way, or remove {self.place.folder} to begin again"
        )


@dataclass(frozen=True, slots=True)
class Journal:
    """The partition and the finished shards of one job at a destination; it can be pickled.

    `job` is the digest of the job's description, which `place` stores until another job begins.
    """

    place: Place
    job: str

    def partition(self) -> Partition | None:
        """Return the partition that an earlier run of the job, or another part, has saved."""
        data = self.place.read(self._partition_name)
        return None if data is None else Partition.from_json(data, str(self.place.destination))

    def save_partition(self, partition: Partition) -> None:
        """Save the partition for later runs of the job, and for other parts."""
        self.place.write(self._partition_name, partition.to_json().encode())

    @contextlib.contextmanager
    def drafts(self) -> Iterator[Path]:
        """Make a folder for the temporary files of one process, and remove it at the end.

        Its name is unique because a worker may outlive a killed run for a moment, and must not write to it.
        """
        folder = self.place.scratch
        with tempfile.TemporaryDirectory("", "fastload-drafts-", folder, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def add(self, shard: ShardRange, finished: FinishedShard, path: Path) -> None:
        """Move the file of a shard to its place, and record the shard as finished.

        Raises DestinationError if another job has begun there: at a URL, no lock prevents that.
        """
        self._require_current()
        if finished.entry is not None:
            self.place.store(f"{folder_of(shard.split)}/{finished.entry.file}", path)
        text = json.dumps({"job": self.job, **asdict(finished)})
        self.place.write(_entry_name(shard), text.encode())

    def finished(
        self, shards: Iterable[ShardRange]
    ) -> tuple[dict[ShardRange, FinishedShard], dict[ShardRange, str]]:
        """Return the shards that are finished and intact, and the defect of each other shard."""
        finished: dict[ShardRange, FinishedShard] = {}
        defects: dict[ShardRange, str] = {}
        for shard in shards:
            try:
                finished[shard] = self._require(shard)
            except DamageError as error:
                defects[shard] = str(error)
        return finished, defects

    def publish(self, manifests: Mapping[str, Manifest]) -> None:
        """Make the dataset readable at the destination, and remove the state.

        Raises DestinationError if another job has begun there, or a dataset was published meanwhile.
        """
        self._require_current()
        for split, manifest in manifests.items():
            self.place.write(f"{folder_of(split)}/{MANIFEST_NAME}", manifest.to_bytes())
        self.place.publish()

    @property
    def _partition_name(self) -> str:
        # Named after the job, so that parts of two jobs that begin at once do not use each other's partition.
        return f"{STATE}/{self.job}.partition.json"

    def _require_current(self) -> None:
        if _digest(self.place.read(_JOB)) != self.job:
            raise DestinationError(
                f"{self.place.destination}: another process has begun to pack to it, or has just finished: "
                "wait until it ends, or choose another destination"
            )

    def _require(self, shard: ShardRange) -> FinishedShard:
        """Return a finished shard; raise DamageError, with the reason, if it is missing or damaged."""
        name = _entry_name(shard)
        data = self.place.read(name)
        if data is None:
            raise DamageError("it is not packed yet")
        try:
            content = json.loads(data)
            if content.pop("job") != self.job:
                raise DamageError("it was packed with other options, or from another state of the source")
            entry, shape = content["entry"], content["image_shape"]
            finished = FinishedShard(
                None if entry is None else ShardEntry(**entry),
                None if shape is None else (shape[0], shape[1], shape[2]),
                tuple(Skipped(**each) for each in content["skipped"]),
                tuple(Skipped(**each) for each in content["kept"]),
                tuple(content["notes"]),
                content["read_bytes"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamageError(f"its entry {name} is damaged ({error})") from error
        if finished.entry is not None:
            defect = self.place.defect(f"{folder_of(shard.split)}/{finished.entry.file}", finished.entry)
            if defect is not None:
                raise DamageError(defect)
        return finished


def folder_of(split: str) -> str:
    """Return the name of the folder that holds a split's shards and manifest."""
    return f"{DATASET}/{split}.fl" if split else DATASET


def _digest(job: bytes | None) -> str:
    return hashlib.sha256(job or b"").hexdigest()


def _entry_name(shard: ShardRange) -> str:
    return f"{STATE}/{shard.split or 'all'}-{shard.number:05d}.finished.json"
