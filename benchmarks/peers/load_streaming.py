"""MosaicML Streaming's side of bench_load.py: MDS shards of the files' bytes, decoded by OpenCV.

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
from epochs import Loading, serve, written
from photos import list_photos, random_crop
from torchvision_operators import declare_operators

declare_operators()  # for Streaming's import of torchvision

import streaming  # noqa: E402

VERSIONS = {"MosaicML Streaming": version("mosaicml-streaming")}


class Crops(streaming.StreamingDataset):
    """Random crops of a dataset's images."""

    def __init__(self, job: Mapping[str, Any], **place: str) -> None:
        super().__init__(**place, shuffle=True, batch_size=job["batch_size"])
        self._size = job["size"]

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        return torch.from_numpy(random_crop(sample["image"], self._size)).permute(2, 0, 1), sample["label"]


def prepare(job: Mapping[str, Any]) -> Loading:
    """Write the shards and make the loader."""
    cv2.setNumThreads(0)
    folder = Path(job["scratch"]) / "streaming"
    stored = written(folder, partial(write_shards, job["source"], folder))
    loader = loader_of(job, Crops(job, local=str(folder)))
    return Loading(lambda: loader, stored, VERSIONS)


def loader_of(job: Mapping[str, Any], crops: Crops) -> streaming.StreamingDataLoader:
    """Return the loader that the job describes."""
    return streaming.StreamingDataLoader(
        crops,
        batch_size=job["batch_size"],
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        pin_memory=job["device"] not in (None, "cpu"),
        drop_last=True,
    )


def write_shards(source: str, folder: Path, shard_size: str = "64mb") -> None:
    """Write a folder's files as shards, of the default size unless another one is given."""
    columns = {"image": "bytes", "label": "int"}
    with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=shard_size) as writer:
        for path, label in list_photos(source):
            writer.write({"image": Path(path).read_bytes(), "label": label})


if __name__ == "__main__":
    serve(prepare)
