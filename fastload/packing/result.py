"""Progress and results of `pack` and `merge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastload.shards.manifest import LeftOut, Manifest, Skipped
from fastload.shards.remote import RemoteFolder
from fastload.sources.protocol import Account


@dataclass(frozen=True, slots=True)
class PackProgress:
    """Progress of `pack`.

    Attributes:
        split: The split that is being packed; empty if there is only one.
        records: The source records processed in all splits, including those of an earlier, resumed run.
        total: The source records in all splits.
        resumed: The records that an earlier run had finished.
        read_bytes: The bytes read from the source in this run.
        written_bytes: The bytes stored in this run.
        seconds: The time since this run began.
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
    """One packed dataset made by `pack` or `merge`, or the part of it that was packed."""

    path: Path | str  # its folder, or its URL
    records: int
    size_bytes: int  # of its shards
    skipped: tuple[Skipped, ...]  # source files that were left out because they cannot be read
    kept: tuple[Skipped, ...]  # source files that were stored although they are not readable images
    image_shape: tuple[int, int, int] | None  # (height, width, channels) if all images share it
    left_out: tuple[LeftOut, ...]  # files of the source that are not records
    has_images: bool  # its samples have an image
    has_objects: bool  # its samples have objects, whose number may vary


def splits_of(destination: Path | RemoteFolder, manifests: Mapping[str, Manifest]) -> tuple[PackedSplit, ...]:
    """Return a description of each split at a destination, from its manifest."""
    splits = []
    for split, manifest in manifests.items():
        path = destination / f"{split}.fl" if split else destination
        packed = PackedSplit(
            path if isinstance(path, Path) else str(path),
            manifest.records,
            manifest.size_bytes,
            manifest.skipped,
            manifest.kept,
            manifest.image_shape,
            manifest.left_out,
            manifest.image is not None,
            any(field.is_of_objects for field in manifest.fields),
        )
        splits.append(packed)
    return tuple(splits)


@dataclass(frozen=True, slots=True)
class PackResult:
    """Result of `pack` or `merge`.

    Attributes:
        splits: The packed datasets: one, or one for each of train, val, test.
        encoding: The name of the images' encoding; empty if records have no image.
        reason: The reason for the encoding, if `auto` chose it; otherwise empty.
        classes: The names of the classes.
        read_bytes: The bytes read from the source in this run.
        resumed: The records that an earlier, interrupted run had packed.
        seconds: The time that this run took.
        warnings: Peculiarities of the source.
        columns: The decision for each field of a table; empty for other sources.
        doubts: Sentences on what may be missing, such as the labels of a split.
        account: The numbers of the folder's files: in records, read with them, left out; None if the source
            is no folder.
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
    doubts: tuple[str, ...] = ()
    account: Account | None = None

    @property
    def records(self) -> int:
        """The number of records in all splits."""
        return sum(split.records for split in self.splits)

    @property
    def size_bytes(self) -> int:
        """The size of all shards."""
        return sum(split.size_bytes for split in self.splits)
