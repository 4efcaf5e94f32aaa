"""`fastload bench decode`: PIL and OpenCV, operation by operation, on this machine and these images."""

from __future__ import annotations

import os
import tempfile
import time
import timeit
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.bench.conditions import identified
from fastload.bench.images import LoadedImage, link_images, list_images, make_files, one_core, read_images
from fastload.bench.loading import OnProgress, take_turns
from fastload.bench.operations import MEAN, OPERATIONS, STD, Operation, Sample
from fastload.bench.peers import Peer, Run, fastload_peer, opencv_peer, pil_peer
from fastload.bench.results import REFERENCE, Comparison, DecodeBench, Difference, Library, Timing

# The shortest turn on one core: a thousand times as long as reading the clock and a call from Python.
_TURN_S = 0.03
_COMPARED = 8  # images that are compared pixel by pixel: enough for a mean


def compare_decoding(
    folder: str | os.PathLike[str] | None = None,
    *,
    images: int = 24,
    runs: int = 5,
    others: Sequence[Peer | Library] = (),
    is_smoke: bool = False,
    progress: OnProgress = lambda stage, done, total: None,
) -> DecodeBench:
    """Measure every installed library.

    Args:
        folder: Images to sample evenly, of the first split if there are several; None for generated ones.
        images: The number of images at most.
        runs: Turns of each call.
        others: Further libraries; in the checkout, benchmarks/ has some.
        is_smoke: Check only that it runs, with small images and short turns.
        progress: Called with a stage, how much of it is done, and how much there is.

    Raises:
        SourceError: The folder holds no readable images.
    """
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory(prefix="fastload-bench-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' warnings do not matter here
        photos = Path(name)
        available = None
        if folder is None:
            make_files(photos, images, 0.2 if is_smoke else 1.0)
        else:
            source = list_images(folder)
            available = len(source)
            link_images(source, photos, images)
        loaded, described = read_images(photos, available)
        found = [*library_peers(), *others]
        peers = [each for each in found if isinstance(each, Peer)]
        turn = {"turn_s": 0.0} if is_smoke else {}
        with one_core():
            for operation in OPERATIONS:
                progress(f"comparing: {operation.key}", len(comparisons), len(OPERATIONS))
                comparisons.append(compare_operation(operation, peers, loaded, runs, **turn))
    libraries = [
        Library(each.library, each.version, each.jpeg) if isinstance(each, Peer) else each for each in found
    ]
    return DecodeBench(
        comparisons=tuple(comparisons),
        libraries=(*libraries, Library("torch", torch.__version__)),
        images=described,
        conditions=identified(is_smoke) | {"cache": "warm"},
        runs=runs,
    )


def library_peers() -> list[Peer]:
    """Return the libraries that are always compared, PIL first."""
    return [pil_peer(), opencv_peer(), fastload_peer()]


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def compare_operation(
    operation: Operation,
    peers: Sequence[Peer],
    images: Sequence[LoadedImage],
    runs: int,
    turn_s: float = _TURN_S,
) -> Comparison:
    """Time every call of every peer, PIL first; `turn_s` is the least duration of a turn."""
    reference: list[object] = []
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


def _input(operation: Operation, image: LoadedImage, peer: Peer) -> object:
    if operation.start == "data":
        return image.data
    return Sample(image.data, image.box) if operation.start == "sample" else peer.from_pixels(image.pixels)


def _try_out(run: Run, inputs: Sequence[object], turn_s: float) -> tuple[list[object], int]:
    """Return the results for the first inputs, and the repetitions that make a turn last `turn_s`."""
    results, seconds = [], []
    for value in inputs[:_COMPARED]:
        start = time.perf_counter()
        results.append(run(value))
        seconds.append(time.perf_counter() - start)
    # The fastest call counts: the first one also prepares.
    return results, max(1, round(turn_s / max(min(seconds) * len(inputs), 1e-9)))


def timed_turn(run: Run, inputs: Sequence[object], repeats: int) -> float:
    """Return the mean seconds of a call over all inputs, each repeated."""

    def run_all() -> None:
        for value in inputs:
            run(value)

    # Without garbage collection, whose pauses would affect libraries unequally.
    return timeit.timeit(run_all, number=repeats) / (repeats * len(inputs))


def difference(
    results: Sequence[object], references: Sequence[object], is_normalised: bool = False
) -> Difference:
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


def as_levels(result: object, is_normalised: bool = False) -> NDArray[np.float32]:
    """Return a PIL image, array or tensor as levels 0…255 (floats are 0…1), float32, channels last."""
    if isinstance(result, torch.Tensor):
        pixels = result.permute(1, 2, 0).numpy()
    else:
        pixels = np.atleast_3d(np.asarray(result))
    levels = pixels.astype(np.float32)
    if is_normalised:
        levels = levels * np.array(STD, np.float32) + np.array(MEAN, np.float32)
    return levels * 255 if np.issubdtype(pixels.dtype, np.floating) else levels
