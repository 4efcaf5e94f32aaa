"""The choices that torchvision gives names: InterpolationMode, AutoAugmentPolicy."""

from __future__ import annotations

from enum import Enum


class InterpolationMode(str, Enum):
    """How pixels are made of other pixels; torchvision's names and values, which its transforms take too.

    `BOX`, `HAMMING` and `LANCZOS` are PIL's alone: fastload's transforms refuse them.
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class AutoAugmentPolicy(Enum):
    """Which data AutoAugment's policies were learned on; torchvision's names and values."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"
