"""What every source is: a numbered list of records that any process can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastload.shards.manifest import LeftOut, Skipped
from fastload.shards.schema import Field


@dataclass(slots=True)
class SourceRecord:
    """One record as its source holds it.

    Attributes:
        key: The record's name: a relative path with `/` between its parts, or a number.
        image: A file's bytes, or uint8 pixels: RGB (height, width, 3) or grey (height, width).
        values: The value of each of the source's fields, by the field's name.
    """

    key: str
    image: bytes | npt.NDArray[np.uint8]
    values: dict[str, object]


class Source(Protocol):
    """A list of records, read by number, in whichever process asks; it survives a pickle."""

    @property
    def kind(self) -> str:
        """`folder` (class folders), `flat` (images alone), `table` or `dataset`."""

    @property
    def name(self) -> str:
        """What to call the source: its path as it was given, or the dataset's class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names that labels count into; empty where there are none."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """What each record holds beside its image."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the listing found odd and went on from, one sentence each."""

    @property
    def columns(self) -> Mapping[str, str]:
        """What a table's columns turned out to be, by field, one phrase each; empty for other sources."""

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files that lie where the records do, and are none."""

    @property
    def unlisted(self) -> tuple[Skipped, ...]:
        """The folders that may hold records, and could not be listed."""

    def __len__(self) -> int:
        """The number of records."""

    def key(self, index: int) -> str:
        """The name of a record; two records may share one."""

    def read(self, index: int) -> SourceRecord:
        """Reads one record.

        Raises:
            SourceError: The record cannot be read, or is not what the fields say; names it.
        """

    def fingerprint(self) -> str:
        """A hexadecimal digest of the listing: equal while names, sizes and times are."""

    def size_bytes(self) -> int | None:
        """The size of all files together in bytes; None where it cannot be known."""

    def sample(self, count: int) -> list[int]:
        """At most `count` indices, evenly spaced over the source."""


def evenly_spaced(length: int, count: int) -> list[int]:
    """At most `count` different indices below `length`, ascending, each in the middle of its share.

    >>> evenly_spaced(100, 4)
    [12, 37, 62, 87]
    """
    count = min(count, length)
    return [(2 * turn + 1) * length // (2 * count) for turn in range(count)]
