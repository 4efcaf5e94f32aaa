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

from fastload.errors import DamageError, DestinationError
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
        if hashlib.sha256(self.place.read(JOB) or b"").hexdigest() != self.job:
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

    def finished(
        self, shards: Sequence[ShardRange]
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


def _entry_name(shard: ShardRange) -> str:
    return f"{STATE}/{shard.split or 'all'}-{shard.number:05d}.finished.json"
