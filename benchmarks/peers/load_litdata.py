"""LitData's side of bench_load.py: optimized chunks of the files' bytes, decoded by OpenCV.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import torch
from epochs import Loading, serve, written
from photos import list_photos, random_crop
from torchvision_operators import declare_operators

declare_operators()  # for LitData's import of torchvision

import litdata  # noqa: E402

VERSIONS = {"LitData": version("litdata")}


class Crops(litdata.StreamingDataset):
    """Random crops of a dataset's images."""

    def __init__(self, job: Mapping[str, Any], place: str, cache_dir: str | None = None) -> None:
        super().__init__(place, cache_dir, shuffle=True)
        self._size = job["size"]

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        data, label = super().__getitem__(index)
        return torch.from_numpy(random_crop(data, self._size)).permute(2, 0, 1), label


def prepare(job: Mapping[str, Any]) -> Loading:
    """Write the chunks and make the loader."""
    cv2.setNumThreads(0)
    folder = Path(job["scratch"]) / "litdata"
    stored = written(folder, partial(write_chunks, job["source"], folder, max(1, job["workers"])))
    loader = loader_of(job, Crops(job, str(folder)))
    return Loading(lambda: loader, stored, VERSIONS)


def loader_of(job: Mapping[str, Any], crops: Crops) -> litdata.StreamingDataLoader:
    """Return the loader that the job describes."""
    return litdata.StreamingDataLoader(
        crops,
        batch_size=job["batch_size"],
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        pin_memory=job["device"] not in (None, "cpu"),
        drop_last=True,
    )


def write_chunks(source: str, folder: Path, workers: int, chunk_size: str = "64MB") -> None:
    """Write a folder's files as chunks, of 64 MB unless another size is given."""
    # It empties its caches, by default two folders of the system's temporary one, whoever made them.
    for name in ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER"):
        os.environ[name] = str(folder.with_name(f"litdata-{name.lower()}"))
    litdata.optimize(
        _read, list_photos(source), str(folder), chunk_bytes=chunk_size, num_workers=workers, verbose=False
    )


def _read(photo: tuple[str, int]) -> tuple[bytes, int]:
    path, label = photo
    return Path(path).read_bytes(), label


if __name__ == "__main__":
    serve(prepare)
