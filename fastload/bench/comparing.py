"""The comparison on one core: every library's ways of every operation, in turns, on the same pictures."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastload.bench.measure import TURN_S, difference, repeats_for, timed_turn, turns
from fastload.bench.operations import OPERATIONS, Operation, shorter_side
from fastload.bench.pictures import Picture, given_values
from fastload.bench.result import Comparison, Difference, Missing, Row
from fastload.bench.sides import first_line
from fastload.bench.sides.side import Side, Way

_COMPARED = 8
"""How many pictures are compared pixel by pixel: enough for a mean, and soon done."""

_REFERENCE = "PIL"


def compare_operation(
    operation: Operation,
    sides: Sequence[Side],
    pictures: Sequence[Picture],
    size: int,
    runs: int,
    step: Callable[[], None],
    turn_s: float = TURN_S,
) -> Comparison:
    """Has every side do an operation.

    Args:
        operation: What is done.
        sides: The libraries, the reference first.
        pictures: What it is done to.
        size: Of crops and resizes, in pixels.
        runs: The turns of each way.
        step: Called after each turn.
        turn_s: How long a turn lasts at least.
    """
    ways: list[tuple[Side, Way, Sequence[Any]]] = []
    missing: list[Missing] = []
    apart: list[Difference | None] = []
    works: list[Callable[[], float]] = []
    reference: list[Any] | None = None
    for side, way in ways_of(operation.key, sides):
        inputs = _inputs(operation, side, pictures, size)
        try:
            results, once = _done_once(way, inputs[:_COMPARED])
            apart.append(
                difference(results, results if reference is None else reference, operation.is_normalised)
            )
        except Exception as error:  # a release that lacks a function must not cost the comparison
            missing.append(Missing(side.library, way.call, first_line(error)))
            continue
        if side.library == _REFERENCE and reference is None:
            reference = results
        ways.append((side, way, inputs))
        works.append(_turn(way, inputs, repeats_for(once * len(inputs), turn_s)))
    if reference is None:
        apart = [None] * len(ways)
    seconds = turns(works, runs, step)
    rows = (
        Row(side.library, way.call, taken, distance)
        for (side, way, _), taken, distance in zip(ways, seconds, apart, strict=True)
    )
    return Comparison(operation.key, operation.group, titled(operation, size), tuple(rows), tuple(missing))


def ways_of(key: str, sides: Sequence[Side]) -> Iterator[tuple[Side, Way]]:
    """All ways of doing an operation."""
    return ((side, way) for side in sides for way in side.ways if way.operation == key)


def count_turns(sides: Sequence[Side], runs: int) -> int:
    """How often `compare_operation` will call `step` for all operations."""
    return runs * sum(1 for operation in OPERATIONS for _ in ways_of(operation.key, sides))


def titled(operation: Operation, size: int) -> str:
    """An operation's title with the numbers of this run."""
    return operation.title.format(side=size, half=size // 2, shorter=shorter_side(size))


def median_s(comparison: Comparison, library: str) -> float | None:
    """The median of a library's fastest way, in seconds for an image; None where it has none."""
    medians = [statistics.median(row.seconds) for row in comparison.rows if row.library == library]
    return min(medians, default=None)


def _inputs(operation: Operation, side: Side, pictures: Sequence[Picture], size: int) -> Sequence[Any]:
    values = given_values(pictures, operation.given, size)
    is_pixels = operation.given in ("pixels", "small")
    return [side.take(value) for value in values] if is_pixels else list(values)


def _done_once(way: Way, inputs: Sequence[Any]) -> tuple[list[Any], float]:
    """The results, and the seconds of the quickest call: the first one is slow, since it prepares."""
    results, seconds = [], []
    for value in inputs:
        began = time.perf_counter()
        results.append(way.work(value))
        seconds.append(time.perf_counter() - began)
    return results, min(seconds)


def _turn(way: Way, inputs: Sequence[Any], repeats: int) -> Callable[[], float]:
    return lambda: timed_turn(way.work, inputs, repeats)
