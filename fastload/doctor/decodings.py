"""What decoding the user's own images takes in each way, on one core."""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fastload.doctor.data import IMAGE_ENDINGS
from fastload.errors import FastloadError
from fastload.images.decode import decode
from fastload.images.encodings import Encoding, StoredImage, encoding_named
from fastload.images.opencv import cv2
from fastload.images.resize import SizeLimit
from fastload.loader.diagnosis.measurements import Decoding

_MOST_IMAGES = 12
# Pixels of all of them: a second's decoding, and as much for making the other encodings.
_MOST_PIXELS = 24e6
_MOST_S = 2.0
_TURNS = 3
_SHRUNK_SIDE = 256

# Written between two images: until an image's turn comes again, its bytes have left the CPU's caches, as
# those of the next sample of a training have.
_BETWEEN_BYTES = 4 << 20


def measure_decoding(
    paths: Sequence[str], most_s: float = _MOST_S, *, are_images: bool = False
) -> Decoding | None:
    """Decodes a few of the files in each way, in turns.

    Args:
        paths: Files; those that are no images by their name are left out, unless all are images.
        most_s: About how long to go on, in seconds; a turn that has begun is ended.
        are_images: Whether all of them are, whatever they are called.

    Returns:
        None where there are no images, or none that can be decoded.
    """
    names = [path for path in paths if are_images or path.lower().endswith(IMAGE_ENDINGS)]
    files = [data for data in map(_read, _evenly(names, _MOST_IMAGES)) if data is not None]
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="fastload-doctor-") as workdir:
            return _measure(files, Path(workdir), most_s)
    finally:
        cv2.setNumThreads(threads)


def _measure(files: list[bytes], workdir: Path, most_s: float) -> Decoding | None:
    shapes: list[tuple[int, ...]] = []
    kept: list[bytes] = []
    for data in files:
        if sum(height * width for height, width, _ in shapes) >= _MOST_PIXELS:
            break
        with contextlib.suppress(FastloadError):
            shapes.append(decode(data).shape)
            kept.append(data)
    if not kept:
        return None
    ways: dict[str, list[Callable[[], object]]] = {"OpenCV": [partial(decode, data) for data in kept]}
    with contextlib.suppress(ImportError, OSError):  # not installed, or no reader of a file's format
        ways["PIL"] = [_pil_way(data) for data in kept]
    stored: dict[str, float] = {}
    for name in ("tiled", "raw"):
        with contextlib.suppress(FastloadError, OSError):
            encoding = encoding_named(name)
            images = [encoding.encode(data, None, workdir) for data in kept]
            stored[name] = statistics.fmean(len(image.data) for image in images)
            ways[name] = [partial(_copied, encoding, image) for image in images]
    height, width = (statistics.fmean(shape[side] for shape in shapes) for side in (0, 1))
    if min(height, width) > 1.5 * _SHRUNK_SIDE:
        with contextlib.suppress(FastloadError):
            jpeg = encoding_named("jpeg")
            limit = SizeLimit(shorter_side=_SHRUNK_SIDE)
            small = [jpeg.encode(data, limit, workdir) for data in kept]
            ways["shrunk"] = [partial(decode, image.data) for image in small]
    seconds = _timed(ways, most_s)
    shrunk_s = seconds.pop("shrunk", None)
    return Decoding(seconds, stored, height, width, shrunk_s, _SHRUNK_SIDE)


def _timed(ways: dict[str, list[Callable[[], object]]], most_s: float) -> dict[str, float]:
    """The CPU time of an image in each way: the median of turns, in which the ways take turns.

    It is each image's median: now and then, a page that the system has to find first takes long.
    """
    turns: dict[str, list[list[float]]] = {name: [] for name in ways}
    between = np.zeros(_BETWEEN_BYTES, np.uint8)
    began = time.perf_counter()
    for _ in range(_TURNS):
        for name, works in ways.items():
            if turns[name] and time.perf_counter() - began > most_s:
                continue
            taken = []
            for work in works:
                between += 1
                at = time.thread_time()
                work()
                taken.append(time.thread_time() - at)
            turns[name].append(taken)
    return {
        name: statistics.fmean(map(statistics.median, zip(*each, strict=True)))
        for name, each in turns.items()
    }


def _copied(encoding: Encoding, image: StoredImage) -> object:
    """Decodes, into memory of its own: `raw` would give a view, and whoever uses it read the bytes then."""
    return encoding.decode(image.data, image.shape).copy()


def _pil_way(data: bytes) -> Callable[[], object]:
    from PIL import Image

    Image.open(io.BytesIO(data)).close()
    return lambda: Image.open(io.BytesIO(data)).convert("RGB")


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _evenly(paths: Sequence[str], count: int) -> Sequence[str]:
    return paths[:: max(1, len(paths) // count)][:count]
