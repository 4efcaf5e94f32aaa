"""Journal of the finished shards of a job.

A shard is finished once its entry, which is written last, exists. Any process can write entries: each is a
separate file, written atomically.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fastload.errors import DestinationError
from fastload.packing.encoding.assemble import FinishedShard, ShardRange
from fastload.packing.staging.places import DATASET, STATE, Place
from fastload.shards.manifest import ShardEntry, Skipped

JOB = f"{STATE}/job.json"


@dataclass(frozen=True, slots=True)
class Journal:
    """The finished shards of one job at a destination; it can be pickled.

    `job` is the digest of the job's description, which `place` stores until another job begins.
    """

    place: Place
    job: str
    destination: str

    def require_current(self) -> None:
        """Raise DestinationError if another job has begun at the destination, or this one has ended."""
        if digest_of(self.place.read(JOB) or b"") != self.job:
            raise DestinationError(
                f"{self.destination}: another packing to it has begun meanwhile, or has ended: wait for its "
                "end, or choose another destination"
            )

    def add(self, shard: ShardRange, finished: FinishedShard, path: Path) -> None:
        """Move the file of a shard to its place, and record the shard as finished.

        Raises DestinationError if another job has begun there: at a URL, no lock prevents that.
        """
        self.require_current()
        if finished.entry is not None:
            self.place.store(f"{folder_of(shard.split)}/{finished.entry.file}", path)
        text = json.dumps({"job": self.job, **asdict(finished)})
        self.place.write(_entry_name(shard), text.encode())

    @contextlib.contextmanager
    def drafts(self) -> Iterator[Path]:
        """Make a folder for the temporary files of one process, and remove it at the end.

        Its name is unique because a worker may outlive a killed run for a moment, and must not write to it.
        """
        folder = self.place.scratch
        with tempfile.TemporaryDirectory("", "fastload-drafts-", folder, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def finished(self, shards: Sequence[ShardRange]) -> dict[ShardRange, FinishedShard]:
        """Return the shards that are finished and intact."""
        found = {shard: self._finished(shard) for shard in shards}
        return {shard: each for shard, each in found.items() if each is not None}

    def _finished(self, shard: ShardRange) -> FinishedShard | None:
        """Return a finished shard; None if it is missing, damaged, or of another job."""
        try:
            content = json.loads(self.place.read(_entry_name(shard)) or b"{}")
            entry, shape = content["entry"], content["image_shape"]
            finished = FinishedShard(
                None if entry is None else ShardEntry(**entry),
                None if shape is None else (shape[0], shape[1], shape[2]),
                tuple(Skipped(**each) for each in content["skipped"]),
                tuple(Skipped(**each) for each in content["kept"]),
                tuple(content["notes"]),
                content["read_bytes"],
            )
        except (ValueError, KeyError, TypeError):
            return None
        if content["job"] != self.job:
            return None
        if finished.entry is None or self.place.holds(folder_of(shard.split), finished.entry):
            return finished
        return None


def digest_of(job: bytes) -> str:
    """Return the digest of a job's description."""
    return hashlib.sha256(job).hexdigest()


def folder_of(split: str) -> str:
    """Return the name of the folder that holds a split's shards and manifest."""
    return f"{DATASET}/{split}.fl" if split else DATASET


def _entry_name(shard: ShardRange) -> str:
    return f"{STATE}/{shard.split or 'all'}-{shard.number:05d}.finished.json"
