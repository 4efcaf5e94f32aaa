"""What does each step from torch's DataLoader to fastload gain, with torchvision's transforms kept?

Method. An ImageFolder of photos with RandomResizedCrop(224), RandomHorizontalFlip, ToTensor and Normalize, in
batches of 64; and thumbnails of 32×32 in memory, as CIFAR's, padded by 4, cropped, flipped and normalised.
Photos come from `--photos`, a folder of class folders, or are generated with the file size of ImageNet's. All
sides have the same number of workers, which are kept between epochs. They take turns: in its turn, a side
loads one epoch, into a loop that does nothing. Before that, each has loaded one.

The first row is torch's DataLoader. In the others, the import is changed and nothing else, without and with
the optional TurboJPEG; or also a cache on the disk is added, which is complete before the turns begin; or the
same photos, packed with `--encode tiled`, take the place of the folder.

How to read it. `relative time` is the median, as a multiple of torch's. Random parameters are the same in all
rows but for the order of the photos, so all of them do the same work.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.utils.data
from _harness import (
    Key,
    Missing,
    Reading,
    Report,
    Side,
    Table,
    options_of,
    progress,
    publish,
    take_turns,
    work_folder,
)
from _photos import copy_folder, make_folder
from peers.torchvision_operators import declare_operators

import fastload
from fastload.images import region
from fastload.images.region import find_turbojpeg

PHOTOS, THUMBS = "Photos, batches of 64", "Thumbnails, batches of {}"
TORCH = "torch DataLoader, ImageFolder"
TORCH_THUMBS = "torch DataLoader, CIFAR10"
IMPORT = "fastload, the import alone"
WITH_TURBOJPEG = f"{IMPORT}, with TurboJPEG"
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_BATCHES_OF_THUMBS = (512, 128)


def main() -> None:
    options = options_of(
        __doc__,
        photos={"type": Path, "metavar": "FOLDER", "help": "a folder of class folders (made here)"},
        epoch={"type": int, "metavar": "N", "help": "photos in an epoch (2,000)"},
        workers={"type": int, "metavar": "N", "default": 2, "help": "workers of each side (2)"},
    )
    options.epoch = options.epoch or (16 if options.smoke else 2_000)
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Make the photos and thumbnails, and load epochs of them in turns."""
    thumbs = 256 if options.smoke else 50_000
    tables = [Table(PHOTOS, "images", options.epoch)]
    tables += [Table(THUMBS.format(size), "images", thumbs) for size in _BATCHES_OF_THUMBS]
    loaders: dict[Key, Any] = {}
    missing: list[Missing] = []
    _operators = declare_operators()
    try:
        import torchvision
    except ImportError:
        missing = [Missing(table.title, "fastload", "torchvision is not installed") for table in tables]
    else:
        loaders = photo_loaders(options, folder) | thumb_loaders(torchvision, thumbs, options.workers)
        if find_turbojpeg() is None:
            del loaders[Key(PHOTOS, WITH_TURBOJPEG)]
            missing = [Missing(PHOTOS, WITH_TURBOJPEG, "TurboJPEG 3 is not installed")]
    for key, loader in loaders.items():
        progress(f"warming up: {key.row}")
        epoch(key, loader)
    sides: list[Side] = [partial(epoch, key, loader) for key, loader in loaders.items()]
    readings = take_turns(sides, options.runs)
    return Report(
        name="compile",
        question=str(__doc__).partition("\n")[0],
        setting={"runs": options.runs, "workers": options.workers, "page cache": "warm"},
        tables=tables,
        readings=readings,
        missing=missing,
        versions={},
    )


def epoch(key: Key, loader: Iterable[Any]) -> dict[Key, Reading]:
    """Load one epoch."""
    began = time.perf_counter()
    for _ in loader:
        pass
    return {key: Reading(time.perf_counter() - began)}


def photo_loaders(options: argparse.Namespace, folder: Path) -> dict[Key, Any]:
    """Return the loaders of photos."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    photos, packed = folder / "photos", folder / "photos.fl"
    progress(f"writing {options.epoch} photos")
    if options.photos is None:
        make_folder(photos, options.epoch)
    else:
        copy_folder(options.photos, photos, options.epoch)
    command = [sys.executable, "-m", "fastload", "pack", photos, packed, "--encode", "tiled", "--quiet"]
    subprocess.run(command, check=True)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(*IMAGENET),
        ]
    )
    given = {"batch_size": 64, "shuffle": True, "num_workers": options.workers, "persistent_workers": True}
    files = ImageFolder(str(photos), transform)
    shards = fastload.PackedDataset(packed, transform)
    cached = fastload.compile(files, cache=fastload.Cache("disk", folder=str(folder / "caches")))
    progress("filling the cache")
    while cached.images.cached.state.startswith("filling"):
        time.sleep(0.2)
    return {
        Key(PHOTOS, TORCH): torch.utils.data.DataLoader(files, **given),
        Key(PHOTOS, IMPORT): fastload.DataLoader(files, worker_init_fn=without_turbojpeg, **given),
        Key(PHOTOS, WITH_TURBOJPEG): fastload.DataLoader(files, **given),
        Key(PHOTOS, 'fastload, cache="disk"'): fastload.DataLoader(cached, **given),
        Key(PHOTOS, "fastload, packed as tiled"): fastload.DataLoader(shards, **given),
    }


def without_turbojpeg(worker: int) -> None:
    """Let a worker decode as if TurboJPEG were not installed."""
    vars(region)["find_turbojpeg"] = lambda: None


def thumb_loaders(torchvision: Any, count: int, workers: int) -> dict[Key, Any]:
    """Return the loaders of thumbnails, which are noise, in an object of torchvision's own class."""
    transforms = torchvision.transforms
    dataset = torchvision.datasets.CIFAR10.__new__(torchvision.datasets.CIFAR10)
    rng = np.random.default_rng(0)
    dataset.data = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
    dataset.targets = rng.integers(0, 10, count).tolist()
    dataset.target_transform = None
    dataset.transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(*IMAGENET),
        ]
    )
    loaders: dict[Key, Any] = {}
    for size in _BATCHES_OF_THUMBS:
        title = THUMBS.format(size)
        given = {"batch_size": size, "shuffle": True, "num_workers": workers, "persistent_workers": True}
        loaders[Key(title, TORCH_THUMBS)] = torch.utils.data.DataLoader(dataset, **given)
        loaders[Key(title, IMPORT)] = fastload.DataLoader(dataset, **given)
    return loaders


if __name__ == "__main__":
    main()
