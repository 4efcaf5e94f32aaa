"""The protocol of sources: numbered records that any process can read."""

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
    """A list of records, read by number in any process; it can be pickled."""

    @property
    def kind(self) -> str:
        """`folder` (class folders), `flat` (images alone), `table` or `dataset`."""

    @property
    def name(self) -> str:
        """The source's path as given, or the dataset's class."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names by label; empty if there are none."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of each record beside its image."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Peculiarities that did not stop the listing, one sentence each."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The decision about each column of a table, by field; empty for other sources."""

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The files beside the records that are not records."""

    @property
    def unlisted(self) -> tuple[Skipped, ...]:
        """The folders that could not be listed, and may hold records."""

    def __len__(self) -> int: ...

    def key(self, index: int) -> str:
        """Return the name of a record; two records may share one."""

    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming it, if it cannot be read or does not fit the fields."""

    def fingerprint(self) -> str:
        """Return a hexadecimal digest of the listing: equal while names, sizes and times are."""


def evenly_spaced(length: int, count: int) -> list[int]:
    """Return at most `count` different indices below `length`, ascending, each in the middle of its share.

    >>> evenly_spaced(100, 4)
    [12, 37, 62, 87]
    """
    count = min(count, length)
    return [(2 * turn + 1) * length // (2 * count) for turn in range(count)]
