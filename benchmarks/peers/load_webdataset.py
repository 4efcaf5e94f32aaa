"""WebDataset's side of bench_load.py: tar files, decoded by OpenCV, in torch's DataLoader.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import torch
import webdataset
from epochs import Loading, serve, written
from photos import list_photos, random_crop

_SHUFFLED = 1000  # samples in the buffer, as in WebDataset's documentation


def prepare(job: Mapping[str, Any]) -> Loading:
    """Write a shard for each worker, at least, and make the loader."""
    folder = Path(job["scratch"]) / "webdataset"
    shards = max(4, job["workers"])
    stored = written(folder, partial(_write, job["source"], folder, shards))
    urls = [str(path) for path in sorted(folder.glob("*.tar"))]
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=shards, empty_check=False)
        .shuffle(_SHUFFLED)
        .map(partial(_sample, size=job["size"]))
        .batched(job["batch_size"], partial=False)
    )
    loader = webdataset.WebLoader(
        dataset,
        batch_size=None,
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        pin_memory=job["device"] not in (None, "cpu"),
        worker_init_fn=_begin_worker,
    )
    return Loading(lambda: loader, stored, {"WebDataset": version("webdataset")})


def _write(source: str, folder: Path, shards: int) -> None:
    folder.mkdir()
    photos = list_photos(source)
    for shard in range(shards):
        with webdataset.TarWriter(str(folder / f"{shard:04d}.tar")) as writer:
            for number in range(shard, len(photos), shards):
                path, label = photos[number]
                writer.write({"__key__": f"{number:08d}", "jpg": Path(path).read_bytes(), "cls": label})


def _sample(sample: Mapping[str, Any], size: int) -> tuple[torch.Tensor, int]:
    image = torch.from_numpy(random_crop(sample["jpg"], size)).permute(2, 0, 1)
    return image, int(sample["cls"])


def _begin_worker(number: int) -> None:
    cv2.setNumThreads(0)


if __name__ == "__main__":
    serve(prepare)
