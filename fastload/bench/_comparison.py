"""Comparison of calls that take turns: on one core here, or in the workers of a DataLoader."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import fastload
import fastload.transforms as T
from fastload.bench._operations import IMAGE_SIDE, MEAN, STD, Operation, Sample
from fastload.bench._peers import Peer, first_line
from fastload.bench.images import LoadedImage, list_images
from fastload.bench.loading import TURN_S, FilesByLibrary, TimedLoader, race, take_turns
from fastload.bench.results import REFERENCE, Comparison, Difference, Timing
from fastload.images.opencv import cv2

# Least duration of a turn on one core: a thousand times that of reading the clock and of a call from Python.
_TURN_S = 0.03
_COMPARED = 8  # images that are compared pixel by pixel: enough for a mean


def compare_operation(
    operation: Operation,
    peers: Sequence[Peer],
    images: Sequence[LoadedImage],
    runs: int,
    turn_s: float = _TURN_S,
) -> Comparison:
    """Time every call of every peer, PIL first; `turn_s` is the least duration of a turn."""
    reference: list[Any] = []
    found: list[tuple[str, str, Difference]] = []
    missing: list[str] = []
    turns: list[Callable[[], float]] = []
    for peer in peers:
        for call, run in peer.calls_for(operation.key):
            inputs = [_input(operation, image, peer) for image in images]
            try:
                results, repeats = _try_out(run, inputs, turn_s)
                if peer.library == REFERENCE:
                    reference = results
                apart = difference(results, reference, operation.is_normalised)
            except Exception as error:  # a release without this function must not end the comparison
                missing.append(f"{peer.library}, {call}: {first_line(error)}")
                continue
            found.append((peer.library, call, apart))
            turns.append(partial(timed_turn, run, inputs, repeats))
    rows = (
        Timing(library, call, seconds, apart)
        for (library, call, apart), seconds in zip(found, take_turns(turns, runs), strict=True)
    )
    return Comparison(operation.key, operation.group, operation.title, tuple(rows), tuple(missing))


def _input(operation: Operation, image: LoadedImage, peer: Peer) -> Any:
    if operation.start == "data":
        return image.data
    return Sample(image.data, image.box) if operation.start == "sample" else peer.from_pixels(image.pixels)


def _try_out(run: Callable[[Any], Any], inputs: Sequence[Any], turn_s: float) -> tuple[list[Any], int]:
    """Return the results for the first inputs, and the repetitions that make a turn last `turn_s`."""
    results, seconds = [], []
    for value in inputs[:_COMPARED]:
        start = time.perf_counter()
        results.append(run(value))
        seconds.append(time.perf_counter() - start)
    # The quickest call counts: the first one also prepares.
    return results, max(1, round(turn_s / max(min(seconds) * len(inputs), 1e-9)))


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


def difference(results: Sequence[Any], references: Sequence[Any], is_normalised: bool = False) -> Difference:
    """Return the difference of results from the references; raise ValueError if shapes differ."""
    apart = []
    for result, reference in zip(results, references, strict=True):
        levels, expected = (as_levels(value, is_normalised) for value in (result, reference))
        if levels.shape != expected.shape:
            raise ValueError(f"gives images of {levels.shape}, PIL of {expected.shape}")
        apart.append(np.abs(levels - expected).ravel())
    values = np.concatenate(apart)
    # A thousandth of a level is rounding of floats.
    return Difference(round(float(values.mean(dtype=np.float64)), 3), round(float(values.max()), 2))


def as_levels(result: Any, is_normalised: bool = False) -> NDArray[np.float32]:
    """Return any result as levels 0…255, float32 (height, width, channels).

    Takes PIL images, arrays (height, width[, channels]) and tensors (channels, height, width); floats are
    0…1, or normalised.
    """
    if isinstance(result, torch.Tensor):
        pixels = result.permute(1, 2, 0).numpy()
    else:
        pixels = np.atleast_3d(np.asarray(result))
    levels = pixels.astype(np.float32)
    if is_normalised:
        levels = levels * np.array(STD, np.float32) + np.array(MEAN, np.float32)
    return levels * 255 if np.issubdtype(pixels.dtype, np.floating) else levels


def compare_loading(
    training: Comparison,
    folder: Path,
    workers: int,
    runs: int,
    progress: Callable[[str, int, int], None],
    turn_s: float = TURN_S,
) -> Comparison:
    """Time PIL and OpenCV in torch's DataLoader and fastload in its own, with the images of a folder.

    `training` is the comparison of the same pipeline on one core, from which the differences are taken.
    """
    files = list_images(folder)
    # A peer's last call is made of the steps that its DataLoader uses.
    last = {row.library: row for row in training.rows}
    rows = [last[library] for library in ("PIL", "OpenCV", "fastload") if library in last]
    loaders: list[TimedLoader] = []
    for row in rows:
        progress(f"starting: {row.library}", len(loaders), len(rows))
        if row.library == "fastload":
            transform = T.Compose([T.RandomResizedCrop(IMAGE_SIDE), T.RandomHorizontalFlip()])
            loaders.append(TimedLoader(fastload.FolderDataset(folder, transform=transform), workers))
        else:
            dataset = FilesByLibrary(files, row.library)
            loaders.append(TimedLoader(dataset, workers, torch.utils.data.DataLoader))
    _, rates = race(loaders, workers, runs, progress, turn_s)
    timings = (
        Timing(
            row.library,
            f"{'fastload' if row.library == 'fastload' else 'torch'}'s DataLoader, {row.call}",
            tuple(1 / rate for rate in values),
            row.difference,
        )
        for row, values in zip(rows, rates, strict=True)
    )
    title = "training in a DataLoader: from files to batches of random crops, uint8"
    return Comparison("loader-training", "Pipeline, DataLoader", title, tuple(timings))
