"""The sides of the race: ways to load the same files, each with the same work to do.

That work is torchvision's RandomResizedCrop(224) and RandomHorizontalFlip, to a uint8 tensor. What a
sample's crop is, comes from Python's `random`, which torch seeds in every worker: with equal seeds all
sides cut the same crops out of the same images in the same order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data
from PIL import Image

import fastload
import fastload.transforms as T
from fastload.sources.files import FileSource
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Geometry, Sizes
from fastload.transforms.transform import Parameters, Pixels

IMAGE_SIDE = 224
BATCH_SIZE = 32

# torchvision's defaults for RandomResizedCrop.
_SCALE = (0.08, 1.0)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Side:
    """One way to load the images.

    Attributes:
        name: What the table calls it.
        size_bytes: What it reads takes on the disk.
        dataset: Its samples, (uint8 tensor (3, 224, 224), label).
        loader: torch's DataLoader or fastload's.
        pack_s: How long packing took; None where nothing was packed.
        encoding: How the images are packed; None where nothing was packed.
    """

    name: str
    size_bytes: int
    dataset: torch.utils.data.Dataset[Any]
    loader: type[torch.utils.data.DataLoader[Any]]
    pack_s: float | None = None
    encoding: str | None = None


class Crop(NamedTuple):
    """A part of an image, in pixels, and whether it is mirrored."""

    top: int
    left: int
    height: int
    width: int
    is_flipped: bool


def draw_crop(height: int, width: int) -> Crop:
    """Draws what torchvision's RandomResizedCrop and RandomHorizontalFlip would do to an image."""
    is_flipped = random.random() < 0.5
    for _ in range(_TRIES):
        area = height * width * random.uniform(*_SCALE)
        ratio = math.exp(random.uniform(*_LOG_RATIO))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return Crop(random.randint(0, height - h), random.randint(0, width - w), h, w, is_flipped)
    # As torchvision does for images that are very long: the largest part of an allowed shape.
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width * 4 / 3))
    return Crop((height - h) // 2, (width - w) // 2, h, w, is_flipped)


class SharedCrop(T.RandomResizedCrop):
    """The work as fastload does it, with the crops of the other sides: fused with decoding."""

    width = 5

    def __init__(self) -> None:
        super().__init__(IMAGE_SIDE)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Boxes, and 1 where an image is mirrored."""
        return np.array([draw_crop(*size) for size in sizes.tolist()], np.float64)

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """A crop, a resize and a flip."""
        return super().fold(geometry, parameters[:, :4]) and geometry.flip(1, parameters[:, 4] > 0)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Crops, resizes and flips."""
        cropped = super().apply(image, parameters[:4])
        return cropped[:, ::-1] if parameters[4] else cropped


def crop_pil(image: Image.Image) -> torch.Tensor:
    """The work as torchvision does it to a PIL image; antialiased as well."""
    top, left, height, width, is_flipped = draw_crop(image.height, image.width)
    image = image.crop((left, top, left + width, top + height))
    image = image.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BILINEAR)
    if is_flipped:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


class PilFolder(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """What torchvision's ImageFolder does, in its own few lines: open, decode with PIL, transform.

    Args:
        files: The files of a folder, in ImageFolder's order.
    """

    def __init__(self, files: FileSource) -> None:
        labels = np.asarray(files.values["label"]).tolist()
        self.samples = [(files.files.path(index), label) for index, label in enumerate(labels)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return crop_pil(image), label


def torch_side(files: FileSource) -> Side:
    """What is raced against: torch's DataLoader, PIL, the files."""
    loader = torch.utils.data.DataLoader
    return Side("torch DataLoader + PIL", files.size_bytes(), PilFolder(files), loader)


def files_side(files: FileSource, folder: Path) -> Side:
    """The same files, read by fastload."""
    dataset = fastload.FolderDataset(folder, transform=SharedCrop())
    return Side("fastload, same files", files.size_bytes(), dataset, fastload.DataLoader)


def packed_side(result: fastload.PackResult) -> Side:
    """What was packed from the files, read by fastload."""
    return Side(
        f"fastload, packed {result.encoding}",
        result.size_bytes,
        fastload.PackedDataset(result.splits[0].path, transform=SharedCrop()),
        fastload.DataLoader,
        pack_s=result.seconds,
        encoding=result.encoding,
    )
