"""Does a network learn as well from fastload's pipeline as from torchvision's?

Question: does anything about the images, their order or their augmentation change what a network learns?

Method. A small convolutional network learns thumbnails of 32×32 in class folders, every fifth of which is
kept for testing: once from `fastload.PackedDataset`, packed raw, with fastload's RandomCrop (padding 4),
flip, ToDtype and Normalize; once from torchvision's ImageFolder with torchvision's transforms of the same
names, on PIL images, in torch's DataLoader; once from that dataset, compiled, in fastload's DataLoader. Each
side has five seeds; a seed gives all sides the same initial weights. PackedDataset has its own shuffles and
crops, the compiled dataset those of torchvision. The test set is the same tensors for all, decoded by PIL.
Network, optimiser, schedule and batch size are the same. It runs on the CPU, in some minutes.

Reading it. The accuracy on the test set: for each side the mean of its seeds, their standard deviation and
their range. The sides should differ by no more than the seeds do: the difference of a side's mean from
torchvision's is shown with its standard error. The ranges overlap unless one side's worst seed beats the
other side's best.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.utils.data
from _harness import (
    RESULTS,
    identified,
    options_of,
    progress,
    publish_json,
    timed_command,
    work_folder,
)
from _photos import files_of, unpack_tar
from _seeds import verdict
from peers.torchvision_operators import declare_operators
from PIL import Image

import fastload
import fastload.transforms as T
from fastload.bench.images import make_photo

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)  # of CIFAR-10
BATCH_SIZE = 128
WORKERS = 2
PEAK_RATE = 0.2
TEST_SHARE = 5  # every fifth file

# Generated classes differ in their stripes: in the angle (which a flip must not turn into that of another
# class) and the wavelength in pixels.
_ANGLES = (0, 22.5, 45, 67.5, 90)
_WAVELENGTHS = (4, 6)
_STRIPES = 20  # of 256 levels, under noise with a deviation of 50: hard enough that no side learns them all


def main() -> None:
    options = options_of(
        __doc__,
        thumbs={"type": Path, "metavar": "PATH", "help": "a folder of class folders, or its tar (made here)"},
        epochs={"type": int, "metavar": "N", "help": "of every training run (8)"},
    )
    options.epochs = options.epochs or (1 if options.smoke else 8)
    options.runs = max(options.runs, 2)  # one seed does not show how seeds differ
    if options.thumbs and options.out == RESULTS:
        progress("only generated thumbnails give the published figures; --out FOLDER saves these")
        options.out = None
    with work_folder(options) as folder:
        publish_json(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on all sides in turns, seed by seed."""
    train, test = split(thumbnails(options, folder), folder)
    packed = folder / "train.fl"
    timed_command([sys.executable, "-m", "fastload", "pack", train, packed, "--encode", "raw", "--quiet"])
    dataset = torchvision_dataset(train)
    loaders: dict[str, Callable[[], Any]] = {
        "torchvision": lambda: torch.utils.data.DataLoader(dataset, **_loading()),
        "fastload": lambda: fastload_loader(packed),
        "compiled": lambda: fastload.DataLoader(dataset, compile=True, **_loading()),
    }
    images, labels = test_set(test)
    accuracies: dict[str, list[float]] = {name: [] for name in loaders}
    for seed in range(options.runs):
        for name, loader in loaders.items():
            torch.manual_seed(seed)
            network = Network(int(labels.max()) + 1)
            learn(network, loader(), options.epochs)
            accuracies[name].append(accuracy(network, images, labels))
            progress(f"seed {seed}, {name}: {accuracies[name][-1]:.2%}")
    return {
        **identified(
            "training",
            str(__doc__).partition("\n")[0],
            {
                "data": "files given" if options.thumbs else "files made by the benchmark",
                "images": f"{len(files_of(train))} to learn, {len(labels)} to test",
                "epochs": options.epochs,
                "seeds": options.runs,
                "page cache": "warm",
            },
            {"torchvision": version("torchvision"), "pillow": version("pillow")},
        ),
        "accuracies": {name: [round(value, 5) for value in values] for name, values in accuracies.items()},
        "differences": {
            name: verdict(accuracies["torchvision"], accuracies[name]) for name in list(accuracies)[1:]
        },
        "tables": [],
        "rows": [],
        "missing": [],
        "grids": grids(accuracies),
    }


def grids(accuracies: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return tables of the sides and of their differences."""
    rows = [
        [
            name,
            f"{statistics.mean(values):.2%}",
            f"{100 * statistics.stdev(values):.2f} points",
            f"{min(values):.2%}–{max(values):.2%}",
        ]
        for name, values in accuracies.items()
    ]
    differences = []
    for name in list(accuracies)[1:]:
        found = verdict(accuracies["torchvision"], accuracies[name])
        points = f"{100 * found['difference']:+.2f} points", f"{100 * found['standard_error']:.2f} points"
        differences.append([name, *points, "yes" if found["ranges_overlap"] else "no"])
    return [
        {"heads": ["Accuracy on the test", "mean", "standard deviation", "lowest–highest"], "rows": rows},
        {
            "heads": ["Side", "its mean minus torchvision's", "standard error", "ranges overlap"],
            "rows": differences,
        },
    ]


class Network(torch.nn.Sequential):
    """Four convolutions and a linear layer: 80,000 weights."""

    def __init__(self, classes: int) -> None:
        layers: list[torch.nn.Module] = []
        for before, after, stride in ((3, 16, 1), (16, 32, 2), (32, 64, 2), (64, 96, 2)):
            convolution = torch.nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
            layers += [convolution, torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)]
        pool = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
        super().__init__(*layers, *pool, torch.nn.Linear(96, classes))


def learn(network: Network, loader: Any, epochs: int) -> None:
    """Train by SGD with momentum and a one-cycle learning rate."""
    optimiser = torch.optim.SGD(
        network.parameters(), lr=PEAK_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, PEAK_RATE, max(2, steps))
    network.train()
    for _ in range(epochs):
        for images, labels in loader:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(images), labels).backward()
            optimiser.step()
            schedule.step()


@torch.no_grad()
def accuracy(network: Network, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images that are classified correctly."""
    network.eval()
    guesses = torch.cat([network(batch).argmax(1) for batch in images.split(512)])
    return (guesses == labels).double().mean().item()


def fastload_loader(packed: Path) -> Any:
    """Return fastload's loader with its dataset and transforms."""
    transform = T.Compose(
        [
            T.RandomCrop(32, padding=4),
            T.RandomHorizontalFlip(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize(MEAN, STD),
        ]
    )
    dataset = fastload.PackedDataset(packed, transform=transform)
    return fastload.DataLoader(dataset, **_loading())


def torchvision_dataset(train: Path) -> Any:
    """Return torchvision's dataset with its transforms."""
    operators = declare_operators()
    from torchvision import datasets
    from torchvision.transforms import v2

    transform = v2.Compose(
        [
            v2.RandomCrop(32, padding=4),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    dataset = datasets.ImageFolder(train, transform=transform)
    dataset.operators = operators
    return dataset


def _loading() -> dict[str, Any]:
    """Return the arguments of all loaders."""
    return {
        "batch_size": BATCH_SIZE,
        "shuffle": True,
        "num_workers": WORKERS,
        "persistent_workers": True,
        "drop_last": True,
    }


def test_set(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all test images, normalised, and their labels."""
    classes = sorted(path.name for path in folder.iterdir())
    files = files_of(folder)
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std, torch.tensor([classes.index(file.parent.name) for file in files])


def split(source: Path, folder: Path) -> tuple[Path, Path]:
    """Return folders to learn from and to test with; every fifth file of a class is a test."""
    train, test = folder / "train", folder / "test"
    for path in sorted(path for path in source.iterdir() if path.is_dir()):
        for number, file in enumerate(sorted(path.iterdir())):
            target = (test if number % TEST_SHARE == 0 else train) / path.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return train, test


def thumbnails(options: argparse.Namespace, folder: Path) -> Path:
    """Return the folder of the given images, or of generated ones."""
    if options.thumbs and options.thumbs.is_dir():
        return options.thumbs
    source = folder / "thumbs"
    if options.thumbs:
        unpack_tar(options.thumbs, source)
    else:
        make_thumbnails(source, 40 if options.smoke else 1_000)
    return source


def make_thumbnails(folder: Path, count: int) -> None:
    """Write ten classes of `count` JPEGs each: stripes under noise with the spectrum of photographs."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:32, :32]
    for angle in _ANGLES:
        for wavelength in _WAVELENGTHS:
            path = folder / f"{angle}-degrees-{wavelength}-pixels"
            path.mkdir(parents=True)
            turn = math.radians(angle)
            place = (columns * math.cos(turn) + rows * math.sin(turn)) * 2 * math.pi / wavelength
            for number in range(count):
                colour = rng.uniform(0.3, 1, 3)
                stripes = np.sin(place + rng.uniform(0, 2 * math.pi))[:, :, None] * colour * _STRIPES
                pixels = np.clip(make_photo(rng, 32, 32) + stripes, 0, 255).astype(np.uint8)
                bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
                cv2.imwrite(str(path / f"{number:04d}.jpg"), bgr, [cv2.IMWRITE_JPEG_QUALITY, 95])


if __name__ == "__main__":
    main()
