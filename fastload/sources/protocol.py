"""Base class of sources: numbered records that any process can read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.shards.manifest import LeftOut
from fastload.shards.schema import Field


@dataclass(slots=True)
class SourceRecord:
    """One record, read from its source.

    Attributes:
        key: The record's name: a relative path with `/` between its parts, or a number.
        image: A file's bytes, or uint8 pixels: RGB (height, width, 3) or grey (height, width).
        values: The value of each of the source's fields, by the field's name. A further image that a record
            lacks is b"".
        notes: What was put right in reading the record, a sentence each.
    """

    key: str
    image: bytes | npt.NDArray[np.uint8]
    values: dict[str, object]
    notes: tuple[str, ...] = ()


@dataclass(eq=False, kw_only=True)
class Source(ABC):
    """A list of records, read by index in any process; it can be pickled.

    Attributes:
        kind: `folder` (class folders), `flat` (images alone), `table`, `dataset`, or the layout's name:
            `unpack` chooses its writer by it.
        name: The source's path as given, or the dataset's class.
        classes: The class names by label; empty if there are none.
        fields: The fields of each record other than its image.
        warnings: Peculiarities that did not stop the listing, one sentence each.
        columns: The decision about each column of a table, by field; empty for other sources.
        left_out: The files of the source that are not records.
        details: What `unpack` needs to write the layout again beside the records, as JSON.
        is_upright: Coordinates count from the corner of the image turned upright by its EXIF orientation.
    """

    kind: str
    name: str
    classes: tuple[str, ...]
    fields: tuple[Field, ...]
    warnings: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    is_upright: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    def key(self, index: int) -> str:
        """Return the name of a record, which two may share; the index, so that keys sort as records do."""
        return f"{index:08d}"

    @abstractmethod
    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming it, if it cannot be read or does not fit the fields."""

    def sizes_bytes(self) -> npt.NDArray[np.int64] | None:
        """Return the size of each record in the source; None if it is unknown before a record is read."""
        return None

    @abstractmethod
    def fingerprint(self) -> str | None:
        """Return a hexadecimal digest of the listing: equal while names, sizes and times are.

        It is None if later changes of the source could not be noticed.
        """


def evenly_spaced(length: int, count: int) -> list[int]:
    """Return at most `count` indices below `length`, ascending, each in the middle of one of equal parts.

    >>> evenly_spaced(100, 4)
    [12, 37, 62, 87]
    """
    count = min(count, length)
    return [(2 * turn + 1) * length // (2 * count) for turn in range(count)]
