"""Verdict on PIL and OpenCV, derived from the figures of a comparison alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastload.bench.results import REFERENCE, Comparison, DecodeBench, Timing

LEAST_RATIO = 1.05
"""Least lead that counts: the clock, the scheduler and the next run differ by as much."""

LEAST_WINS = 0.8
"""Share of runs in which the winner must be faster: within a run all meet the same machine."""

_LIKENESSES = ("equal", "close", "other", None)  # the best one first


@dataclass(frozen=True, slots=True)
class Standing:
    """PIL's call for an operation and OpenCV's best one; a winner leads by `LEAST_RATIO` in `LEAST_WINS`."""

    comparison: Comparison
    reference: Timing
    contender: Timing
    winner: Literal["PIL", "OpenCV", "neither"]

    @property
    def ratio(self) -> float:
        """Return OpenCV's speed in multiples of PIL's."""
        return self.contender.images_per_s / self.reference.images_per_s


def standings(bench: DecodeBench) -> list[Standing]:
    """Return the standing of every operation that both libraries support."""
    found = []
    for comparison in bench.comparisons:
        pil, opencv = most_similar(comparison, REFERENCE), most_similar(comparison, "OpenCV")
        if pil and opencv:
            is_won, is_lost = _is_faster(opencv, pil), _is_faster(pil, opencv)
            found.append(
                Standing(comparison, pil, opencv, "OpenCV" if is_won else "PIL" if is_lost else "neither")
            )
    return found


def _is_faster(row: Timing, other: Timing) -> bool:
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
        return _LIKENESSES.index(row.likeness), apart, -row.images_per_s

    return min((row for row in comparison.rows if row.library == library), key=preference, default=None)


def fastest_equal(comparison: Comparison) -> Timing | None:
    """Return the fastest call whose images equal PIL's."""
    rows = [row for row in comparison.rows if row.likeness == "equal"]
    return max(rows, key=lambda row: row.images_per_s, default=None)


def verdict(bench: DecodeBench) -> list[str]:
    """Return the answer in sentences, the shortest one first."""
    found = standings(bench)
    # Pipelines consist of the single operations, so they are counted separately.
    pipelines = [standing for standing in found if "Pipeline" in standing.comparison.group]
    single = [standing for standing in found if standing not in pipelines]
    if not single:
        return ["PIL and OpenCV have no operation in common that could be measured here."]
    won, lost, even = (
        [standing for standing in single if standing.winner == name] for name in ("OpenCV", "PIL", "neither")
    )
    unlike = sum(standing.contender.likeness == "other" for standing in won)
    aside = f" (at {unlike} of them its pixels differ visibly from PIL's)" if unlike else ""
    sentences = [
        f"On this machine OpenCV is faster at {len(won)} of {len(single)} operations{aside}; "
        f"PIL is faster at {len(lost)}; {len(even) or 'none'} {'is' if len(even) == 1 else 'are'} "
        "too close to call."
    ]
    if pipelines:
        sentences.append(f"Whole pipelines: {'; '.join(map(_pace, pipelines))}.")
    wins = [f"{s.comparison.title} ({1 / s.ratio:.1f} ×)" for s in lost]
    sentences.append(f"PIL is faster at {'; '.join(wins) or 'no single operation here'}.")
    differing = [
        f"{s.comparison.title} ({s.contender.call}, mean difference {s.contender.difference.mean:.1f} levels)"
        for s in single
        if s.contender.difference and s.contender.likeness == "other"
    ]
    if differing:
        sentences.append(f"OpenCV has no call that gives PIL's pixels for: {'; '.join(differing)}.")
    return sentences


def _pace(standing: Standing) -> str:
    name = standing.comparison.title.partition(":")[0]
    name = f"{name} in a DataLoader" if standing.comparison.is_loaded else name
    if standing.winner == "neither":
        return f"{name} is too close to call"
    ratio = standing.ratio if standing.winner == "OpenCV" else 1 / standing.ratio
    return f"{name} is {ratio:.1f} × as fast with {standing.winner}"
