"""MosaicML Streaming's side of `fastload bench load`: MDS shards of the files' bytes, decoded by OpenCV.

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


class Crops(streaming.StreamingDataset):
    """Random crops of a folder's images."""

    def __init__(self, folder: Path, size: int, batch_size: int) -> None:
        super().__init__(local=str(folder), shuffle=True, batch_size=batch_size)
        self._size = size

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        sample = super().__getitem__(index)
        return torch.from_numpy(random_crop(sample["image"], self._size)).permute(2, 0, 1), sample["label"]


def prepare(job: Mapping[str, Any]) -> Loading:
    """Write the shards and make the loader."""
    cv2.setNumThreads(0)
    folder = Path(job["scratch"]) / "streaming"
    stored = written(folder, partial(_write, job["source"], folder))
    loader = streaming.StreamingDataLoader(
        Crops(folder, job["size"], job["batch_size"]),
        batch_size=job["batch_size"],
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        pin_memory=job["device"] not in (None, "cpu"),
        drop_last=True,
    )
    return Loading(lambda: loader, stored, {"MosaicML Streaming": version("mosaicml-streaming")})


def _write(source: str, folder: Path) -> None:
    with streaming.MDSWriter(out=str(folder), columns={"image": "bytes", "label": "int"}) as writer:
        for path, label in list_photos(source):
            writer.write({"image": Path(path).read_bytes(), "label": label})


if __name__ == "__main__":
    serve(prepare)
