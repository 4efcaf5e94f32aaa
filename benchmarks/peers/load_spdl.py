"""SPDL's side of bench_load.py: files, decoded by OpenCV in its threads.

Its batches are NumPy arrays; they are not converted to torch tensors. Runs in the environment made by
install.py, never in fastload's own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from epochs import Loading, Stored, serve
from photos import list_photos, random_crop
from spdl.pipeline import PipelineBuilder


def prepare(job: Mapping[str, Any]) -> Loading:
    """List the files; each epoch is a new pipeline."""
    cv2.setNumThreads(0)
    photos = list_photos(job["source"])
    threads = max(1, job["workers"])

    def load(batch: Sequence[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
        images = [random_crop(np.fromfile(path, np.uint8), job["size"]) for path, _ in batch]
        return np.stack(images), np.array([label for _, label in batch])

    def epoch() -> Iterator[Any]:
        random.shuffle(photos)
        builder = PipelineBuilder().add_source(iter(photos)).aggregate(job["batch_size"], drop_last=True)
        pipeline = builder.pipe(load, concurrency=threads).add_sink(3).build(num_threads=threads)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return Loading(epoch, Stored(Path(job["source"])), {"SPDL": version("spdl")})


if __name__ == "__main__":
    serve(prepare)
