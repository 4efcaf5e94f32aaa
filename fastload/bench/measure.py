"""Timing on one core, in turns, and what two results differ by."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench.operations import MEAN, STD
from fastload.bench.result import Difference
from fastload.images.opencv import cv2

TURN_S = 0.03
"""How long a turn lasts at least: a thousand times what reading the clock and one call from Python cost."""


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """OpenCV and torch keep to one thread."""
    before = cv2.getNumThreads(), torch.get_num_threads()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before[0])
        torch.set_num_threads(before[1])


def repeats_for(seconds: float, least_s: float) -> int:
    """How often work that takes `seconds` is repeated so that a turn lasts `least_s`."""
    return max(1, round(least_s / max(seconds, 1e-9)))


def timed_turn(work: Callable[[Any], Any], inputs: Sequence[Any], repeats: int) -> float:
    """The seconds that a call takes on average over all inputs, several times each."""
    was_enabled = gc.isenabled()
    gc.disable()  # its pauses would hit one side rather than another
    try:
        began = time.perf_counter()
        for _ in range(repeats):
            for value in inputs:
                work(value)
        seconds = time.perf_counter() - began
    finally:
        if was_enabled:
            gc.enable()
    return seconds / (repeats * len(inputs))


def turns(
    sides: Sequence[Callable[[], float]], runs: int, step: Callable[[], None]
) -> list[tuple[float, ...]]:
    """Calls every side once a run, another one first each time, so that drift meets all alike.

    Args:
        sides: Each returns what its turn took.
        runs: How many turns each gets.
        step: Called after each turn.

    Returns:
        What the turns of each side took.
    """
    seconds: list[list[float]] = [[] for _ in sides]
    for run in range(runs):
        for place in range(len(sides)):
            index = (run + place) % len(sides)
            seconds[index].append(sides[index]())
            step()
    return [tuple(values) for values in seconds]


def as_levels(result: Any, is_normalised: bool = False) -> NDArray[np.float32]:
    """A result of any kind as levels, 0…255: float32, (height, width, channels).

    Args:
        result: A PIL image or an array (height, width[, channels]) of levels, or a tensor
            ([1,] channels, height, width); floating-point numbers are 0…1.
        is_normalised: Whether ImageNet's mean is subtracted and the deviation divided by.
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
    """How far results are from the reference's; None where they have other shapes, or there are none."""
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
    # A thousandth of a level is the float's own rounding.
    return Difference(round(mean, 3), round(float(max(values.max() for values in apart)), 2))
