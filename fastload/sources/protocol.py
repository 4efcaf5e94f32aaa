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
    """One record, read from its source."""

    key: str  # a relative path with `/` between its parts, or a number
    # A file, or pixels: RGB (height, width, 3) or grey (height, width); None if the source has no images.
    image: bytes | npt.NDArray[np.uint8] | None
    values: dict[str, object]  # by field; b"" for a further image that the record lacks
    notes: tuple[str, ...] = ()  # corrections, one sentence each


@dataclass(eq=False, kw_only=True)
class Source(ABC):
    """List of records that any process can read by index; picklable."""

    kind: str  # `folder`, `flat` (images alone), `table`, `dataset` or a layout; selects `unpack`'s writer
    name: str  # the source's path as given, or the dataset's class
    classes: tuple[str, ...]  # names, by label
    fields: tuple[Field, ...]  # of each record, except its image
    warnings: tuple[str, ...] = ()  # peculiarities that did not stop the listing, one sentence each
    columns: Mapping[str, str] = field(default_factory=dict)  # for a table, the decision about each field
    left_out: tuple[LeftOut, ...] = ()  # files that are not records
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON from which `unpack` writes the layout
    is_upright: bool = False  # coordinates refer to the image turned by its EXIF orientation
    has_images: bool = True  # each record has an image

    @abstractmethod
    def __len__(self) -> int: ...

    def key(self, index: int) -> str:
        """Return the key of a record, by default its index, padded with zeros; keys may repeat."""
        return f"{index:08d}"

    @abstractmethod
    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming it, if it cannot be read or does not fit the fields."""

    def sizes_bytes(self) -> npt.NDArray[np.int64] | None:
        """Return the size of each record in the source; None if sizes are unknown until records are read."""
        return None

    @abstractmethod
    def fingerprint(self) -> str | None:
        """Return a hexadecimal digest of the listing, which changes if a name, size or time does.

        Return None if later changes of the source could not be detected.
        """


def evenly_spaced(length: int, count: int) -> list[int]:
    """Return at most `count` ascending indices below `length`, each in the middle of an equal part.

    >>> evenly_spaced(100, 4)
    [12, 37, 62, 87]
    """
    count = min(count, length)
    return [(2 * part + 1) * length // (2 * count) for part in range(count)]
