"""torch's side of bench_load.py: its DataLoader on files, decoded by PIL, OpenCV or torchvision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.utils.data
from epochs import Loading, Stored, serve
from photos import list_photos, random_crop
from torchvision_operators import declare_operators


def prepare(job: Mapping[str, Any]) -> Loading:
    """Make dataset and loader."""
    datasets: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "PIL": image_folder,
        "OpenCV": _opencv_files,
        "torchvision": _torchvision_files,
    }
    loader = torch.utils.data.DataLoader(
        datasets[job["decoder"]](job),
        batch_size=job["batch_size"],
        shuffle=True,
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        pin_memory=job["device"] not in (None, "cpu"),
        drop_last=True,
        worker_init_fn=_begin_worker,
    )
    packages = {"PIL": "pillow", "torchvision": "torchvision"}
    used = {name: version(package) for name, package in packages.items() if name == job["decoder"]}
    return Loading(lambda: loader, Stored(Path(job["source"])), used)


def _begin_worker(number: int) -> None:
    cv2.setNumThreads(0)  # there is a process for each CPU


def image_folder(job: Mapping[str, Any]) -> Any:
    """Return ImageFolder with torchvision's transforms on PIL images."""
    declare_operators()
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
    return datasets.ImageFolder(job["source"], transform=transform)


class PhotoFiles(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Photos that a function loads by their paths."""

    def __init__(self, source: str, load: Callable[[str], torch.Tensor]) -> None:
        self._samples = list_photos(source)
        self._load = load

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._samples[index]
        return self._load(path), label


def _opencv_files(job: Mapping[str, Any]) -> PhotoFiles:
    """Return the usual dataset of users who replace PIL with OpenCV."""
    return PhotoFiles(job["source"], partial(_load_by_opencv, size=job["size"]))


def _load_by_opencv(path: str, size: int) -> torch.Tensor:
    return torch.from_numpy(random_crop(np.fromfile(path, np.uint8), size)).permute(2, 0, 1)


def _torchvision_files(job: Mapping[str, Any]) -> PhotoFiles:
    """Return photos that torchvision's compiled decoder reads, with its transforms on tensors."""
    declare_operators()
    from torchvision.transforms import v2

    crop = v2.RandomResizedCrop(job["size"], antialias=True)
    transform = v2.Compose([crop, v2.RandomHorizontalFlip()])
    files = PhotoFiles(job["source"], partial(_load_by_torchvision, transform=transform))
    files[0]  # fails at once, with its message, where the compiled library does not load
    return files


def _load_by_torchvision(path: str, transform: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    from torchvision import io

    return transform(io.decode_image(io.read_file(path), io.ImageReadMode.RGB))


if __name__ == "__main__":
    serve(prepare)
