"""Results of a comparison of libraries: figures only, from which tables and verdicts are derived."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MOST_LEVELS_OF_EQUAL = 2
"""Images are equal if no pixel differs by more: the effect of rounding twice."""

MEAN_LEVELS_OF_CLOSE = 1.0
"""Images are close if pixels differ by no more on average: the effect of JPEG at quality 98."""

REFERENCE = "PIL"
Likeness = Literal["equal", "close", "other"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Absolute difference between two images, mean and largest, in levels of 255."""

    mean: float
    most: float

    @property
    def likeness(self) -> Likeness:
        """Return `equal` within rounding, `close` to the eye, or `other`."""
        if self.most <= MOST_LEVELS_OF_EQUAL:
            return "equal"
        return "close" if self.mean <= MEAN_LEVELS_OF_CLOSE else "other"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per image of one library's call, one figure for each run.

    `difference` is the one from PIL's results; None if the images cannot be compared.
    """

    library: str
    call: str
    seconds: tuple[float, ...]
    difference: Difference | None

    @property
    def images_per_s(self) -> float:
        """Return the median rate."""
        return 1 / statistics.median(self.seconds)

    @property
    def likeness(self) -> Likeness | None:
        """Return how similar the result is to PIL's; None if they cannot be compared."""
        return self.difference.likeness if self.difference else None


@dataclass(frozen=True, slots=True)
class Missing:
    """A call that could not be measured, and the reason."""

    library: str
    call: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """An operation, timed with every library that supports it; PIL's rows are the first."""

    key: str  # the same from release to release
    group: str
    title: str
    rows: tuple[Timing, ...]
    missing: tuple[Missing, ...] = ()

    @property
    def is_loaded(self) -> bool:
        """Tell pipelines in a DataLoader from those on one core."""
        return "DataLoader" in self.group


@dataclass(frozen=True, slots=True)
class Library:
    """An installed library with its JPEG decoder and vector instructions; `version` is None if unusable."""

    name: str
    version: str | None
    jpeg: str = ""
    simd: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Summary of the images that were decoded; `side` is the size in pixels of crops and resizes."""

    count: int
    available: int | None  # in the user's folder; None for generated ones
    formats: Mapping[str, int]
    mean_bytes: float
    mean_height: float
    mean_width: float
    side: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """Complete result of `fastload bench decode`; `workers` is 0 if no DataLoader was measured."""

    comparisons: tuple[Comparison, ...]
    libraries: tuple[Library, ...]
    pictures: ImageSet
    processor: str
    usable_cpus: int
    system: str
    python: str
    runs: int
    loader_runs: int
    workers: int
