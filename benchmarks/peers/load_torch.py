"""torch's side of bench_load.py: its DataLoader on files, decoded by PIL for torchvision, or by OpenCV.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.utils.data
from crops import draw_crop
from epochs import Loading, count_samples, serve
from torchvision_operators import declare_operators

_PACKAGES = ("torch", "torchvision", "pillow", "opencv-python-headless")


def prepare(job: Mapping[str, Any]) -> Loading:
    """Make dataset and loader."""
    loader = torch.utils.data.DataLoader(
        OpenCVFolder(job) if job["decoder"] == "OpenCV" else image_folder(job),
        batch_size=job["batch_size"],
        shuffle=True,
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        drop_last=True,
        worker_init_fn=_begin_worker,
    )
    versions = {f"{package} (torch's side)": version(package) for package in _PACKAGES}
    return Loading(lambda: count_samples(loader), Path(job["source"]), versions)


def _begin_worker(number: int) -> None:
    cv2.setNumThreads(0)  # there is a process for each CPU


def image_folder(job: Mapping[str, Any]) -> Any:
    """Return ImageFolder with torchvision's transforms on PIL images."""
    operators = declare_operators()
    from torchvision import datasets, transforms
    from torchvision.transforms import v2

    # The faster of its two generations of transforms: on photos v2, by a tenth; on thumbnails the first.
    if job["work"] == "photos":
        crop = v2.RandomResizedCrop(job["size"], antialias=True)
        transform: Any = v2.Compose([crop, v2.RandomHorizontalFlip(), v2.PILToTensor()])
    else:
        crop = transforms.RandomCrop(job["size"], padding=job["padding"])
        ends = [transforms.PILToTensor()]
        if job["normalise"]:
            ends = [transforms.ToTensor(), transforms.Normalize(job["mean"], job["std"])]
        transform = transforms.Compose([crop, transforms.RandomHorizontalFlip(), *ends])
    dataset = datasets.ImageFolder(job["source"], transform=transform)
    dataset.operators = operators  # they live as long as this object
    return dataset


class OpenCVFolder(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The usual dataset of users who replace PIL with OpenCV: bilinear, not antialiased."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        classes = sorted(path for path in Path(job["source"]).iterdir() if path.is_dir())
        self._samples = [
            (str(file), label) for label, path in enumerate(classes) for file in sorted(path.iterdir())
        ]
        self._size = (job["size"], job["size"])

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._samples[index]
        data = np.fromfile(path, np.uint8)
        pixels = cv2.imdecode(data, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        top, left, height, width = draw_crop(*pixels.shape[:2])
        crop = pixels[top : top + height, left : left + width]
        image = cv2.resize(crop, self._size, interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
        return torch.from_numpy(image).permute(2, 0, 1), label


if __name__ == "__main__":
    serve(prepare)
