"""Who wins: derived from a comparison's figures alone, the same way each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fastload.bench.result import Comparison, DecodeBench, Likeness, Row

REFERENCE, CONTENDER = "PIL", "OpenCV"

LEAST_RATIO = 1.05
"""What is less of a lead is none: the clock, the scheduler and the next run differ by as much."""

LEAST_WINS = 0.8
"""The share of runs in which the winner must be faster: in each run the sides meet the same machine."""

_ORDER: dict[Likeness | None, int] = {"equal": 0, "close": 1, "other": 2, None: 3}

Winner = Literal["PIL", "OpenCV", "neither"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How PIL and OpenCV stand at one operation.

    Attributes:
        comparison: The operation.
        reference: PIL's way.
        contender: OpenCV's way: of those whose picture is most like PIL's, the fastest.
        winner: Whose median leads by `LEAST_RATIO`, and who is faster in `LEAST_WINS` of the runs.
    """

    comparison: Comparison
    reference: Row
    contender: Row
    winner: Winner

    @property
    def ratio(self) -> float:
        """How many times as fast as PIL OpenCV is."""
        return self.contender.images_per_s / self.reference.images_per_s


def standings(bench: DecodeBench) -> list[Standing]:
    """How the two stand at every operation that both do."""
    found = (_standing(comparison) for comparison in bench.comparisons)
    return [standing for standing in found if standing is not None]


def _standing(comparison: Comparison) -> Standing | None:
    reference, contender = most_alike(comparison, REFERENCE), most_alike(comparison, CONTENDER)
    if reference is None or contender is None:
        return None
    winner: Winner = "neither"
    if leads(contender, reference):
        winner = "OpenCV"
    elif leads(reference, contender):
        winner = "PIL"
    return Standing(comparison, reference, contender, winner)


def leads(row: Row, other: Row) -> bool:
    """Whether a way is faster than another one, by more than chance."""
    wins = sum(ours < theirs for ours, theirs in zip(row.seconds, other.seconds, strict=True))
    is_steady = wins >= LEAST_WINS * len(row.seconds)
    return is_steady and row.images_per_s >= LEAST_RATIO * other.images_per_s


def most_alike(comparison: Comparison, library: str) -> Row | None:
    """The way of a library to compare: equal pictures before close ones before others; then the fastest.

    Among those that are neither equal nor close, the one whose picture is nearest.
    """
    rows = [row for row in comparison.rows if row.library == library]
    return min(rows, key=_preference, default=None)


def _preference(row: Row) -> tuple[int, float, float]:
    likeness = likeness_of(row)
    apart = row.difference.mean if row.difference and likeness == "other" else 0.0
    return _ORDER[likeness], apart, -row.images_per_s


def likeness_of(row: Row) -> Likeness | None:
    """How like PIL's its picture is; None where that cannot be said."""
    return row.difference.likeness if row.difference else None


def fastest_equal(comparison: Comparison) -> Row | None:
    """The fastest way to PIL's own picture."""
    rows = [row for row in comparison.rows if likeness_of(row) == "equal"]
    return max(rows, key=lambda row: row.images_per_s, default=None)


def verdict(bench: DecodeBench) -> list[str]:
    """The answer, in sentences; the first one is the shortest."""
    # Pipelines are made of the operations: they are spoken of by themselves.
    found = standings(bench)
    single = [standing for standing in found if "Pipeline" not in standing.comparison.group]
    whole = [standing for standing in found if "Pipeline" in standing.comparison.group]
    if not single:
        return ["PIL and OpenCV have no operation in common that could be measured here."]
    sentences = [_score(single)]
    if whole:
        parts = [f"{_short(standing)} {_pace(standing)}" for standing in whole]
        sentences.append(f"Whole pipelines: {_listed(parts)}.")
    wins = [s for s in single if s.winner == "PIL"]
    if wins:
        parts = [f"{s.comparison.title} ({1 / s.ratio:.1f} ×)" for s in wins]
        sentences.append(f"PIL wins at {_listed(parts)}.")
    else:
        sentences.append("PIL wins at no single operation here.")
    other = [s for s in single if likeness_of(s.contender) == "other"]
    if other:
        parts = [f"{s.comparison.title} ({_apart(s.contender)})" for s in other]
        sentences.append(
            "OpenCV's speed is that of another picture where nothing that it offers is like PIL's: "
            f"{_listed(parts)}."
        )
    return sentences


def _score(single: Sequence[Standing]) -> str:
    wins = [standing for standing in single if standing.winner == "OpenCV"]
    unlike = sum(likeness_of(standing.contender) == "other" for standing in wins)
    aside = f", at {unlike} of them with another picture than PIL's" if unlike else ""
    lost, even = (sum(standing.winner == name for standing in single) for name in ("PIL", "neither"))
    return (
        f"On this machine OpenCV is faster at {len(wins)} of {len(single)} operations{aside}; "
        f"PIL is at {lost}; {even or 'none'} {'is' if even == 1 else 'are'} too close to call."
    )


def _short(standing: Standing) -> str:
    pipeline = standing.comparison.title.partition(":")[0]
    return f"{pipeline} in a DataLoader" if "DataLoader" in standing.comparison.group else pipeline


def _pace(standing: Standing) -> str:
    if standing.winner == "neither":
        return "is too close to call"
    if standing.winner == "PIL":
        return f"is {1 / standing.ratio:.1f} × as fast with PIL"
    return f"is {standing.ratio:.1f} × as fast with OpenCV"


def _apart(row: Row) -> str:
    return f"{row.call}, {row.difference.mean:.1f} levels apart" if row.difference else row.call


def _listed(parts: Sequence[str]) -> str:
    return "; ".join(parts)
