"""Results of a comparison of libraries, and the verdict on PIL and OpenCV that follows from them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MOST_LEVELS_OF_EQUAL = 2
"""Images are equal if no pixel differs by more: the effect of rounding twice."""

MEAN_LEVELS_OF_CLOSE = 1.0
"""Images are close if pixels differ by no more on average: the effect of JPEG at quality 98."""

LEAST_RATIO = 1.05
"""The smallest lead that counts: the clock, the scheduler and another run differ by as much."""

LEAST_WINS = 0.8
"""Share of runs in which the winner must be faster; within a run, conditions are the same for all."""

REFERENCE = "PIL"
Likeness = Literal["equal", "close", "other"]
_LIKENESSES: tuple[Likeness, ...] = ("equal", "close", "other")  # the best one first
_WINNERS = ("OpenCV", "PIL", "neither")


@dataclass(frozen=True, slots=True)
class Difference:
    """Absolute difference between two images, mean and largest, in levels of 255."""

    mean: float
    most: float

    @property
    def likeness(self) -> Likeness:
        """`equal` within rounding, `close` to the eye, or `other`."""
        if self.most <= MOST_LEVELS_OF_EQUAL:
            return "equal"
        return "close" if self.mean <= MEAN_LEVELS_OF_CLOSE else "other"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per image of one library's call, one figure for each run, and its difference from PIL."""

    library: str
    call: str
    seconds: tuple[float, ...]
    difference: Difference

    @property
    def images_per_s(self) -> float:
        """The median rate."""
        return 1 / statistics.median(self.seconds)

    def is_faster(self, other: Timing) -> bool:
        """Return whether this call is faster by `LEAST_RATIO`, and in `LEAST_WINS` of the runs."""
        wins = sum(mine < its for mine, its in zip(self.seconds, other.seconds, strict=True))
        is_steady = wins >= LEAST_WINS * len(self.seconds)
        return is_steady and self.images_per_s >= LEAST_RATIO * other.images_per_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """An operation, timed with every library that supports it; PIL's row is the first.

    `missing` lists each call that could not be measured, with the reason.
    """

    key: str
    group: str
    title: str
    rows: tuple[Timing, ...]
    missing: tuple[str, ...] = ()

    def row_of(self, library: str) -> Timing:
        """Return a library's call to compare, if there is one: the one most similar to PIL, then the fastest.

        Equal images come before close ones, these before others; among others the nearest one counts.
        """

        def preference(row: Timing) -> tuple[int, float, float]:
            likeness = row.difference.likeness
            apart = row.difference.mean if likeness == "other" else 0.0
            return _LIKENESSES.index(likeness), apart, -row.images_per_s

        return min((row for row in self.rows if row.library == library), key=preference)

    @property
    def pil(self) -> Timing:
        """PIL's call."""
        return self.row_of(REFERENCE)

    @property
    def opencv(self) -> Timing:
        """OpenCV's call."""
        return self.row_of("OpenCV")

    @property
    def libraries(self) -> set[str]:
        """The libraries that have a row."""
        return {row.library for row in self.rows}

    @property
    def ratio(self) -> float:
        """OpenCV's speed in multiples of PIL's."""
        return self.opencv.images_per_s / self.pil.images_per_s

    @property
    def winner(self) -> Literal["PIL", "OpenCV", "neither"]:
        """The library that is faster by more than chance, of PIL and OpenCV."""
        if self.opencv.is_faster(self.pil):
            return "OpenCV"
        return "PIL" if self.pil.is_faster(self.opencv) else "neither"


@dataclass(frozen=True, slots=True)
class Library:
    """A library with its JPEG decoder; `version` is None if it cannot be used, for the `reason`."""

    name: str
    version: str | None
    jpeg: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Summary of the images that were decoded."""

    count: int
    available: int | None  # in the user's folder; None for generated ones
    formats: Mapping[str, int]
    mean_bytes: float
    mean_height: float
    mean_width: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """Complete result of `fastload bench decode`."""

    comparisons: tuple[Comparison, ...]
    libraries: tuple[Library, ...]
    images: ImageSet
    conditions: Mapping[str, Any]
    runs: int


def standings(bench: DecodeBench) -> list[Comparison]:
    """Return the comparisons of operations that both PIL and OpenCV support."""
    return [each for each in bench.comparisons if {REFERENCE, "OpenCV"} <= each.libraries]


def verdict(bench: DecodeBench) -> list[str]:
    """Return the answer in sentences, the shortest one first."""
    found = standings(bench)
    # Pipelines consist of the single operations, so they are counted separately.
    pipelines = [each for each in found if "Pipeline" in each.group]
    single = [each for each in found if each not in pipelines]
    if not single:
        return ["PIL and OpenCV have no operation in common that could be measured here."]
    won, lost, even = ([each for each in single if each.winner == name] for name in _WINNERS)
    unlike = sum(each.opencv.difference.likeness == "other" for each in won)
    aside = f" (at {unlike} of them its pixels differ visibly from PIL's)" if unlike else ""
    sentences = [
        f"On this machine OpenCV is faster at {len(won)} of {len(single)} operations{aside}; "
        f"PIL is faster at {len(lost)}; {len(even) or 'none'} {'is' if len(even) == 1 else 'are'} "
        "too close to call."
    ]
    if pipelines:
        sentences.append(f"Complete pipelines: {'; '.join(map(_pace, pipelines))}.")
    return sentences


def _pace(standing: Comparison) -> str:
    name, winner = standing.title.partition(":")[0], standing.winner
    if winner == "neither":
        return f"{name} is too close to call"
    ratio = standing.ratio if winner == "OpenCV" else 1 / standing.ratio
    return f"{name} is {ratio:.1f} × as fast with {winner}"
