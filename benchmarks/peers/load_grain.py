"""Grain's side of bench_load.py: files, decoded by OpenCV in its threads.

Its batches are NumPy arrays; they are not converted to torch tensors. OpenCV releases the GIL, so threads are
the faster of Grain's two ways here. Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import grain.python as grain
import numpy as np
from epochs import Loading, Stored, serve
from photos import list_photos, random_crop


class Crops:
    """Random crops of a folder's images, by index."""

    def __init__(self, source: str, size: int) -> None:
        self._photos = list_photos(source)
        self._size = size

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        path, label = self._photos[index]
        return random_crop(np.fromfile(path, np.uint8), self._size), label


def prepare(job: Mapping[str, Any]) -> Loading:
    """Make the dataset."""
    cv2.setNumThreads(0)
    reading = grain.ReadOptions(
        num_threads=max(1, job["workers"]), prefetch_buffer_size=2 * job["batch_size"]
    )
    crops = grain.MapDataset.source(Crops(job["source"], job["size"]))
    seeds = itertools.count()

    def epoch() -> Iterator[Any]:
        shuffled = crops.shuffle(next(seeds)).to_iter_dataset(reading)
        return iter(shuffled.batch(job["batch_size"], drop_remainder=True))

    return Loading(epoch, Stored(Path(job["source"])), {"Grain": version("grain")})


if __name__ == "__main__":
    serve(prepare)
