"""FFCV's side of bench_load.py.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from epochs import Loading, serve, written
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import (
    Convert,
    NormalizeImage,
    RandomHorizontalFlip,
    RandomTranslate,
    Squeeze,
    ToTensor,
    ToTorchImage,
)
from ffcv.writer import DatasetWriter
from ffcv_writer import Photos

_PACKAGES = ("opencv-python-headless", "torch", "numpy", "numba")


def prepare(job: Mapping[str, Any]) -> Loading:
    """Write the dataset and compile the loader."""
    beton = Path(job["scratch"]) / f"ffcv-{job['work']}-{job['store']}.beton"
    stored = written(beton, lambda: _write(Path(job["source"]), beton, job))
    loader = Loader(
        str(beton),
        batch_size=job["batch_size"],
        num_workers=job["workers"],
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={"image": _pipeline(job), "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    versions = {"FFCV": version("ffcv")}
    versions |= {f"{package} (FFCV)": version(package) for package in _PACKAGES}
    return Loading(lambda: loader, stored, versions)


def _write(source: Path, beton: Path, job: Mapping[str, Any]) -> None:
    cv2.setNumThreads(0)
    mode = {"jpeg": {"write_mode": "jpg", "jpeg_quality": 90}, "raw": {"write_mode": "raw"}}[job["store"]]
    image = RGBImageField(max_resolution=job["max_side"], **mode)
    writer = DatasetWriter(str(beton), {"image": image, "label": IntField()}, num_workers=job["workers"])
    writer.from_indexed_dataset(Photos(source, "OpenCV"))


def _pipeline(job: Mapping[str, Any]) -> list[Any]:
    """Return the pipelines of FFCV's documentation: ImageNet's for photos, CIFAR-10's for thumbnails."""
    if job["work"] == "photos":
        size = (job["size"], job["size"])
        return [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    augmented = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=job["padding"])]
    mean, std = (np.array(job[name], np.float32) * 255 for name in ("mean", "std"))
    normalised = {
        None: [ToTensor(), ToTorchImage()],
        "compiled": [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage()],
        "by torch": [ToTensor(), ToTorchImage(), Convert(torch.float32), Normalize(mean, std)],
    }
    return augmented + normalised[job["normalise"]]


class Normalize(torch.nn.Module):
    """torchvision's Normalize, in place."""

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        super().__init__()
        self._mean, self._std = (torch.from_numpy(values).view(-1, 1, 1) for values in (mean, std))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.sub_(self._mean).div_(self._std)


if __name__ == "__main__":
    serve(prepare)
