"""Comparison of calls that take turns: on one core here, in a DataLoader in `loading`."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench._operations import MEAN, STD, Operation
from fastload.bench._peers import Peer, first_line
from fastload.bench.images import LoadedImage, inputs_for
from fastload.bench.results import REFERENCE, Comparison, Difference, Missing, Timing
from fastload.images.opencv import cv2

TURN_S = 0.03
"""Least duration of a turn: a thousand times the cost of reading the clock and of one call from Python."""

_COMPARED = 8  # images that are compared pixel by pixel: enough for a mean


class Contender(NamedTuple):
    """A library's call; `prepare` returns the function that takes a turn, and the difference from PIL."""

    library: str
    call: str
    prepare: Callable[[], tuple[Callable[[], float], Difference | None]]


def compare(
    key: str, group: str, title: str, candidates: Iterable[Contender], runs: int, step: Callable[[], None]
) -> Comparison:
    """Time all candidates in turns and return the seconds per image; `step` is called after each turn."""
    prepared: list[tuple[Contender, Difference | None]] = []
    missing: list[Missing] = []
    turns: list[Callable[[], float]] = []
    for candidate in candidates:
        try:
            turn, apart = candidate.prepare()
        except Exception as error:  # a release without this function must not end the comparison
            missing.append(Missing(candidate.library, candidate.call, first_line(error)))
            continue
        prepared.append((candidate, apart))
        turns.append(turn)
    rows = (
        Timing(candidate.library, candidate.call, seconds, apart)
        for (candidate, apart), seconds in zip(prepared, take_turns(turns, runs, step), strict=True)
    )
    return Comparison(key, group, title, tuple(rows), tuple(missing))


def compare_operation(
    operation: Operation,
    peers: Sequence[Peer],
    images: Sequence[LoadedImage],
    size: int,
    runs: int,
    step: Callable[[], None],
    turn_s: float = TURN_S,
) -> Comparison:
    """Time every call of every peer for an operation.

    `size` is the side of crops and resizes in pixels, `turn_s` the least duration of a turn.
    """
    reference: list[Any] = []

    def prepare(peer: Peer, run: Callable[[Any], Any]) -> tuple[Callable[[], float], Difference | None]:
        inputs = list(inputs_for(images, operation.start, size))
        if operation.start in ("pixels", "small"):
            inputs = [peer.from_pixels(pixels) for pixels in inputs]
        results, seconds = [], []
        for value in inputs[:_COMPARED]:
            start = time.perf_counter()
            results.append(run(value))
            seconds.append(time.perf_counter() - start)
        if peer.library == REFERENCE and not reference:
            reference.extend(results)
        apart = difference(results, reference, operation.is_normalised) if reference else None
        # The quickest call counts: the first one also prepares.
        repeats = repeats_for(min(seconds) * len(inputs), turn_s)
        return partial(timed_turn, run, inputs, repeats), apart

    candidates = (
        Contender(peer.library, name, partial(prepare, peer, run))
        for peer in peers
        for name, run in peer.calls_for(operation.key)
    )
    return compare(operation.key, operation.group, operation.titled(size), candidates, runs, step)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Limit OpenCV and torch to one thread."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


def repeats_for(seconds: float, least_s: float) -> int:
    """Return how often work of `seconds` is repeated so that a turn lasts `least_s`."""
    return max(1, round(least_s / max(seconds, 1e-9)))


def timed_turn(run: Callable[[Any], Any], inputs: Sequence[Any], repeats: int) -> float:
    """Return the mean seconds of a call over all inputs, each repeated."""
    was_enabled = gc.isenabled()
    gc.disable()  # its pauses would hit one library rather than another
    try:
        start = time.perf_counter()
        for _ in range(repeats):
            for value in inputs:
                run(value)
        seconds = time.perf_counter() - start
    finally:
        if was_enabled:
            gc.enable()
    return seconds / (repeats * len(inputs))


def take_turns(
    turns: Sequence[Callable[[], float]], runs: int, step: Callable[[], None] = lambda: None
) -> list[tuple[float, ...]]:
    """Call every function once in each run and return the results of each.

    Each run begins with another function, so that drift of the machine affects all alike.
    """
    results: list[list[float]] = [[] for _ in turns]
    for run in range(runs):
        for place in range(len(turns)):
            index = (run + place) % len(turns)
            results[index].append(turns[index]())
            step()
    return [tuple(values) for values in results]


def as_levels(result: Any, is_normalised: bool = False) -> NDArray[np.float32]:
    """Return any result as levels 0…255, float32 (height, width, channels).

    Takes PIL images, arrays (height, width[, channels]) and tensors ([1,] channels, height, width); floats
    are 0…1, or normalised.
    """
    if isinstance(result, torch.Tensor):
        pixels = result.reshape(result.shape[-3:]).permute(1, 2, 0).numpy()
    else:
        pixels = np.atleast_3d(np.asarray(result))
    levels = pixels.astype(np.float32)
    if is_normalised:
        levels = levels * np.array(STD, np.float32) + np.array(MEAN, np.float32)
    return levels * 255 if np.issubdtype(pixels.dtype, np.floating) else levels


def difference(
    results: Sequence[Any], references: Sequence[Any], is_normalised: bool = False
) -> Difference | None:
    """Return the difference of results from the references; None if shapes differ."""
    apart = []
    for result, reference in zip(results, references, strict=True):
        levels, expected = (as_levels(value, is_normalised) for value in (result, reference))
        if levels.shape != expected.shape:
            return None
        apart.append(np.abs(levels - expected).ravel())
    values = np.concatenate(apart)
    # A thousandth of a level is rounding of floats.
    return Difference(round(float(values.mean(dtype=np.float64)), 3), round(float(values.max()), 2))
