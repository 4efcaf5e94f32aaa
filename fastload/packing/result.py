"""What a packing tells: how far it is, and what it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastload.errors import SourceError
from fastload.packing.piece import Failure
from fastload.shards.manifest import LeftOut, Skipped
from fastload.sources import Source


@dataclass(frozen=True, slots=True)
class PackProgress:
    """How far a packing is.

    Attributes:
        split: The split that is being packed; empty where there is only one.
        records: Source records dealt with, in all splits, those of a resumed packing included.
        total: Source records in all splits.
        resumed: Records that an earlier run had finished.
        read_bytes: Read from the source in this run.
        written_bytes: Stored in this run.
        seconds: Since this run began.
    """

    split: str
    records: int
    total: int
    resumed: int
    read_bytes: int
    written_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PackedSplit:
    """One packed dataset that a packing made.

    Attributes:
        path: Its folder.
        records: The number of its records.
        size_bytes: The size of its shards.
        skipped: Source files that cannot be read, and were left out.
        kept: Source files stored although they are no readable image.
        image_shape: (height, width, channels) where all images share it, otherwise None.
        left_out: Files beside them that were not taken for images.
    """

    path: Path
    records: int
    size_bytes: int
    skipped: tuple[Skipped, ...]
    kept: tuple[Skipped, ...]
    image_shape: tuple[int, int, int] | None
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True)
class PackResult:
    """What a packing made.

    Attributes:
        splits: The packed datasets: one, or one for each of train, val, test.
        encoding: The name of the encoding.
        reason: Why it was chosen, where that was left to `auto`; otherwise empty.
        classes: The names of the classes.
        read_bytes: Read from the source in this run.
        resumed: Records that an earlier, interrupted run had packed.
        seconds: How long this run took.
        warnings: What was noticed about the source.
        columns: What was decided for each field of a table, and why; empty for other sources.
    """

    splits: tuple[PackedSplit, ...]
    encoding: str
    reason: str
    classes: tuple[str, ...]
    read_bytes: int
    resumed: int
    seconds: float
    warnings: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records in all splits."""
        return sum(split.records for split in self.splits)

    @property
    def size_bytes(self) -> int:
        """The size of all shards."""
        return sum(split.size_bytes for split in self.splits)


def require_records(source: Source, records: int, failures: Sequence[Failure] = ()) -> None:
    """Requires that a packing of a source has a record: an empty dataset looks like success.

    Args:
        source: The source.
        records: The number of records that it has, or that could be packed.
        failures: Why others could not be.

    Raises:
        SourceError: There is none.
    """
    if records:
        return
    found = "got none"
    if failures:
        first = f"{failures[0].key!r}: {failures[0].reason}"
        found = f"got none that can be packed of {len(source):,}; the first, {first}"
    raise SourceError(f"{source.name}: must have at least one record, {found}: check the source")
