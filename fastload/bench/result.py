"""What a comparison of libraries found: figures only, from which every table and verdict is derived."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MOST_LEVELS_OF_EQUAL = 2
"""Pictures are equal if no pixel differs by more: what rounding twice can do, and no more than that."""

MEAN_LEVELS_OF_CLOSE = 1.0
"""Pictures are close if pixels differ by no more on average: what a JPEG of quality 98 does to its source."""

Likeness = Literal["equal", "close", "other"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two pictures are apart.

    Attributes:
        mean: The absolute difference on average over all values, in levels of 255.
        most: The largest one.
    """

    mean: float
    most: float

    @property
    def likeness(self) -> Likeness:
        """`equal` within rounding, `close` to the eye, or `other`: another picture."""
        if self.most <= MOST_LEVELS_OF_EQUAL:
            return "equal"
        return "close" if self.mean <= MEAN_LEVELS_OF_CLOSE else "other"


@dataclass(frozen=True, slots=True)
class Row:
    """One library's way of doing an operation.

    Attributes:
        library: The library.
        call: The function or the flags that were used.
        seconds: For an image, one figure a run.
        difference: From what PIL makes of the same images; None where that cannot be said.
    """

    library: str
    call: str
    seconds: tuple[float, ...]
    difference: Difference | None

    @property
    def name(self) -> str:
        """The library and the call."""
        return f"{self.library}, {self.call}"

    @property
    def images_per_s(self) -> float:
        """The median."""
        return 1 / statistics.median(self.seconds)

    @property
    def slowest(self) -> float:
        """Images a second of the slowest run."""
        return 1 / max(self.seconds)

    @property
    def fastest(self) -> float:
        """Images a second of the fastest run."""
        return 1 / min(self.seconds)


@dataclass(frozen=True, slots=True)
class Missing:
    """What could not be measured, and why: it is shown, not dropped."""

    library: str
    call: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """An operation, done by every library that can.

    Attributes:
        key: A short name that stays the same from release to release.
        group: What kind of operation it is.
        title: What is done.
        rows: PIL's first.
        missing: What could not be measured.
    """

    key: str
    group: str
    title: str
    rows: tuple[Row, ...]
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True)
class Library:
    """A library as it is installed here.

    Attributes:
        name: What the tables call it.
        version: Its own version; None where it cannot be used.
        jpeg: The JPEG library that it decodes with; "" where it has none.
        simd: The vector instructions that it uses here; "" where it does not say.
        reason: Why it cannot be used; "" where it can.
    """

    name: str
    version: str | None
    jpeg: str = ""
    simd: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pictures:
    """The images of a comparison.

    Attributes:
        count: How many there are.
        available: How many the folder had; None where they were made.
        formats: How many there are of each format.
        mean_bytes: The size of a file, on average.
        mean_height: In pixels.
        mean_width: In pixels.
        side: Of the square that operations crop and resize to, in pixels.
        notes: What was left out, and why.
    """

    count: int
    available: int | None
    formats: Mapping[str, int]
    mean_bytes: float
    mean_height: float
    mean_width: float
    side: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """Everything that `fastload bench decode` found.

    Attributes:
        comparisons: In the order in which they are shown.
        libraries: Those that were looked for.
        pictures: What was decoded.
        processor: Its name.
        usable_cpus: How many of them this process may use.
        system: The operating system and the architecture.
        python: Its version.
        runs: The turns of each side on one core.
        loader_runs: The turns of each DataLoader.
        workers: The processes of each DataLoader; 0 where none was measured.
    """

    comparisons: tuple[Comparison, ...]
    libraries: tuple[Library, ...]
    pictures: Pictures
    processor: str
    usable_cpus: int
    system: str
    python: str
    runs: int
    loader_runs: int
    workers: int
