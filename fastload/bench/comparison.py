"""Comparison on one core: all calls for an operation take turns on the same images."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench.images import LoadedImage, inputs_for
from fastload.bench.operations import MEAN, STD, Operation
from fastload.bench.peers import first_line
from fastload.bench.peers.peer import Peer
from fastload.bench.results import Comparison, Difference, Missing, Timing
from fastload.images.opencv import cv2

TURN_S = 0.03
"""Least duration of a turn: a thousand times the cost of reading the clock and of one call from Python."""

REFERENCE = "PIL"
_COMPARED = 8  # images that are compared pixel by pixel: enough for a mean


def compare_operation(
    operation: Operation,
    peers: Sequence[Peer],
    images: Sequence[LoadedImage],
    size: int,
    runs: int,
    step: Callable[[], None],
    turn_s: float = TURN_S,
) -> Comparison:
    """Time every call of every peer for an operation; `step` is called after each turn.

    `size` is the side of crops and resizes in pixels, `turn_s` the least duration of a turn.
    """
    timings: list[tuple[str, str, Difference | None]] = []
    missing: list[Missing] = []
    turns: list[Callable[[], float]] = []
    reference: list[Any] | None = None
    for peer in peers:
        inputs = list(inputs_for(images, operation.start, size))
        if operation.start in ("pixels", "small"):
            inputs = [peer.from_pixels(pixels) for pixels in inputs]
        for method in peer.methods(operation.key):
            try:
                results, once_s = _try(method.run, inputs[:_COMPARED])
                compared = results if reference is None else reference
                apart = difference(results, compared, operation.is_normalised)
            except Exception as error:  # a release without this function must not end the comparison
                missing.append(Missing(peer.library, method.call, first_line(error)))
                continue
            if peer.library == REFERENCE and reference is None:
                reference = results
            timings.append((peer.library, method.call, apart))
            turns.append(partial(timed_turn, method.run, inputs, repeats_for(once_s * len(inputs), turn_s)))
    seconds = take_turns(turns, runs, step)
    rows = (
        Timing(library, call, taken, None if reference is None else apart)
        for (library, call, apart), taken in zip(timings, seconds, strict=True)
    )
    return Comparison(operation.key, operation.group, operation.titled(size), tuple(rows), tuple(missing))


def count_turns(operations: Sequence[str], peers: Sequence[Peer], runs: int) -> int:
    """Return the number of turns that these operations take."""
    return runs * sum(len(peer.methods(key)) for key in operations for peer in peers)


def median_s(comparison: Comparison, library: str) -> float | None:
    """Return the seconds per image of a library's fastest call, the median; None if it has none."""
    medians = [statistics.median(row.seconds) for row in comparison.rows if row.library == library]
    return min(medians, default=None)


def _try(run: Callable[[Any], Any], inputs: Sequence[Any]) -> tuple[list[Any], float]:
    """Return the results and the seconds of the quickest call: the first one also prepares."""
    results, seconds = [], []
    for value in inputs:
        start = time.perf_counter()
        results.append(run(value))
        seconds.append(time.perf_counter() - start)
    return results, min(seconds)


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
        pixels = np.asarray(result)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    levels = pixels.astype(np.float32)
    if is_normalised:
        levels = levels * np.array(STD, np.float32) + np.array(MEAN, np.float32)
    return levels * 255 if np.issubdtype(pixels.dtype, np.floating) else levels


def difference(
    results: Sequence[Any], references: Sequence[Any], is_normalised: bool = False
) -> Difference | None:
    """Return the difference of results from the reference's; None if shapes differ or there are none."""
    apart = []
    for result, reference in zip(results, references, strict=True):
        levels, expected = (as_levels(value, is_normalised) for value in (result, reference))
        if levels.shape != expected.shape:
            return None
        apart.append(np.abs(levels - expected))
    if not apart:
        return None
    total = sum(values.sum(dtype=np.float64) for values in apart)
    mean = float(total / sum(values.size for values in apart))
    # A thousandth of a level is rounding of floats.
    return Difference(round(mean, 3), round(float(max(values.max() for values in apart)), 2))
