"""Verdict on PIL and OpenCV, derived from the figures of a comparison alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fastload.bench.results import Comparison, DecodeBench, Likeness, Timing

REFERENCE, CONTENDER = "PIL", "OpenCV"

LEAST_RATIO = 1.05
"""Least lead that counts: the clock, the scheduler and the next run differ by as much."""

LEAST_WINS = 0.8
"""Share of runs in which the winner must be faster: within a run all meet the same machine."""

_ORDER: dict[Likeness | None, int] = {"equal": 0, "close": 1, "other": 2, None: 3}

Winner = Literal["PIL", "OpenCV", "neither"]


@dataclass(frozen=True, slots=True)
class Standing:
    """PIL's call for an operation and OpenCV's best one; a winner leads by `LEAST_RATIO` in `LEAST_WINS`."""

    comparison: Comparison
    reference: Timing
    contender: Timing
    winner: Winner

    @property
    def ratio(self) -> float:
        """Return OpenCV's speed in multiples of PIL's."""
        return self.contender.images_per_s / self.reference.images_per_s


def standings(bench: DecodeBench) -> list[Standing]:
    """Return the standing of every operation that both libraries support."""
    found = []
    for comparison in bench.comparisons:
        reference, contender = most_similar(comparison, REFERENCE), most_similar(comparison, CONTENDER)
        if reference is None or contender is None:
            continue
        winner: Winner = "neither"
        if is_faster(contender, reference):
            winner = "OpenCV"
        elif is_faster(reference, contender):
            winner = "PIL"
        found.append(Standing(comparison, reference, contender, winner))
    return found


def is_faster(row: Timing, other: Timing) -> bool:
    """Tell if a call is faster than another one by more than chance."""
    wins = sum(mine < its for mine, its in zip(row.seconds, other.seconds, strict=True))
    is_steady = wins >= LEAST_WINS * len(row.seconds)
    return is_steady and row.images_per_s >= LEAST_RATIO * other.images_per_s


def most_similar(comparison: Comparison, library: str) -> Timing | None:
    """Return a library's call to compare: the one most similar to PIL, then the fastest.

    Equal images come before close ones, these before others; among others the nearest one counts.
    """

    def preference(row: Timing) -> tuple[int, float, float]:
        apart = row.difference.mean if row.difference and row.likeness == "other" else 0.0
        return _ORDER[row.likeness], apart, -row.images_per_s

    return min((row for row in comparison.rows if row.library == library), key=preference, default=None)


def fastest_equal(comparison: Comparison) -> Timing | None:
    """Return the fastest call whose images equal PIL's."""
    rows = [row for row in comparison.rows if row.likeness == "equal"]
    return max(rows, key=lambda row: row.images_per_s, default=None)


def verdict(bench: DecodeBench) -> list[str]:
    """Return the answer in sentences, the shortest one first."""
    found = standings(bench)
    # Pipelines consist of the single operations, so they are counted separately.
    single = [standing for standing in found if not standing.comparison.is_pipeline]
    pipelines = [standing for standing in found if standing.comparison.is_pipeline]
    if not single:
        return ["PIL and OpenCV have no operation in common that could be measured here."]
    sentences = [_score(single)]
    if pipelines:
        sentences.append(f"Whole pipelines: {'; '.join(map(_pace, pipelines))}.")
    wins = [f"{s.comparison.title} ({1 / s.ratio:.1f} ×)" for s in single if s.winner == "PIL"]
    sentences.append(f"PIL is faster at {'; '.join(wins) or 'no single operation here'}.")
    unlike = [
        f"{s.comparison.title} ({s.contender.call}, mean difference {s.contender.difference.mean:.1f} levels)"
        for s in single
        if s.contender.difference and s.contender.likeness == "other"
    ]
    if unlike:
        sentences.append(f"OpenCV has no call that gives PIL's pixels for: {'; '.join(unlike)}.")
    return sentences


def _score(single: Sequence[Standing]) -> str:
    wins = [standing for standing in single if standing.winner == "OpenCV"]
    unlike = sum(standing.contender.likeness == "other" for standing in wins)
    aside = f" (at {unlike} of them its pixels differ visibly from PIL's)" if unlike else ""
    lost, even = (sum(standing.winner == name for standing in single) for name in ("PIL", "neither"))
    return (
        f"On this machine OpenCV is faster at {len(wins)} of {len(single)} operations{aside}; "
        f"PIL is faster at {lost}; {even or 'none'} {'is' if even == 1 else 'are'} too close to call."
    )


def _pace(standing: Standing) -> str:
    name = standing.comparison.title.partition(":")[0]
    name = f"{name} in a DataLoader" if standing.comparison.is_loaded else name
    if standing.winner == "neither":
        return f"{name} is too close to call"
    ratio = standing.ratio if standing.winner == "OpenCV" else 1 / standing.ratio
    return f"{name} is {ratio:.1f} × as fast with {standing.winner}"
