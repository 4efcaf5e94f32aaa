"""Contracts of sources: layouts claim the files of a folder, and read them as numbered records.

A folder is walked once into a `Listing`. Each layout looks at it and returns a `Claim`, or None; the claim
that is chosen gives a `Reading`: a `Source` for each split, and what it knows of the other files. The account
(account.py) then proves that every file is a record's, was read, or is left out with a reason.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.contracts import RecordSource
from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field
from fastload.sources.files import FileList
from fastload.sources.listing import Listing

# The kinds of sources of images without annotations, which FolderDataset reads too.
CLASS_FOLDERS, IMAGES_ALONE = "folder", "flat"


@dataclass(eq=False, kw_only=True)
class Source(RecordSource, ABC):
    """List of records, with what a packed dataset says of them; see `RecordSource`."""

    kind: str
    name: str
    classes: tuple[str, ...]
    fields: tuple[Field, ...]  # of each record, except its image
    warnings: tuple[str, ...] = ()  # peculiarities that did not stop the listing, one sentence each
    # What else needs attention, such as a split without labels; empty if the layout is named.
    doubts: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)  # for a table, the decision about each field
    left_out: tuple[LeftOut, ...] = ()  # files that are not records
    details: Mapping[str, object] = field(default_factory=dict)  # JSON for the layout's writer
    is_upright: bool = False
    # In the first split alone: the account of the folder, and the annotation files of all splits, by names
    # relative to the folder of the keys, which are attached to the packed dataset.
    account: Account | None = None
    attached: FileList | None = None
    has_images: bool = True
    doubt: str = ""  # the message that refuses the source, unless its layout is named

    def key(self, index: int) -> str:
        """Return the index, padded with zeros."""
        return f"{index:08d}"

    def sizes_bytes(self) -> npt.NDArray[np.int64] | None:
        """Return None: sizes are unknown."""
        return None

    def record_files(self) -> Iterator[FileList]:
        """Yield the lists of the files that records store: images and masks, or containers of records."""
        yield from ()

    def annotation_files(self) -> Iterator[FileList]:
        """Yield the lists of the other files that are read with the records."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Account:
    """The files below a folder: each holds records, was read with them, or was left out with a reason.

    `balanced` in account.py makes it, and raises an error unless the three add up.
    """

    files: int
    records: int  # files that records store: images and masks, or containers of records
    annotations: int  # other files that were read: annotations, lists of splits
    left_out: int
    skipped: int = 0  # of those left out, the files of records that could not be packed


LeftOutReason = tuple[str, bool]
"""The reason why a file is left out, and True if it is clutter, which needs no attention."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The records of a folder by split ("" without splits), and what is known of the other files.

    `annotations` are files that were read to list the records, such as a data.yaml, and `reasons` are those
    of files that are left out, where the layout knows them; both by their paths below the listing's root.
    `listing` holds the files that are accounted for, if they are others than those of the claimed folder:
    those that a description names.
    """

    sources: Mapping[str, Source]
    annotations: Collection[str] = ()
    reasons: Mapping[str, LeftOutReason] = field(default_factory=dict)
    warnings: Sequence[str] = ()  # peculiarities that did not stop the listing, one sentence each
    unlabelled: Sequence[tuple[str, str]] = ()  # names of splits without annotations, each with a sentence
    listing: Listing | None = None
    outside: Collection[str] = ()  # absolute paths of descriptions that lie elsewhere


@dataclass(frozen=True, slots=True)
class Claim:
    """A layout's claim on a folder or a file: its evidence, and the function that lists its records.

    `evidence` continues "it has", as in "images/ beside labels/". `read` raises SourceError if the dataset is
    malformed or cannot be packed without loss.
    """

    evidence: str
    read: Callable[[], Reading]


class Doubt(NamedTuple):
    """A second reading of a folder, continuing "or", and the step that reads it so."""

    reading: str
    step: str


def evenly_spaced(length: int, count: int) -> list[int]:
    """Return at most `count` ascending indices below `length`, each in the middle of an equal part.

    >>> evenly_spaced(100, 4)
    [12, 37, 62, 87]
    """
    count = min(count, length)
    return [(2 * part + 1) * length // (2 * count) for part in range(count)]
