"""Transforms with torchvision's names, parameters and meaning, for what a training's hot path needs.

    import fastload.transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = fastload.PackedDataset("photos.fl", transform=train)

docs/transforms.md says what each one does differently, and what any other library's transform costs.
"""

from fastload.transforms.blurring import GaussianBlur
from fastload.transforms.colour import ColorJitter, Grayscale, RandomGrayscale
from fastload.transforms.compose import Compose, RandomApply
from fastload.transforms.cropping import CenterCrop, RandomCrop, RandomResizedCrop
from fastload.transforms.erasing import RandomErasing
from fastload.transforms.flipping import RandomHorizontalFlip, RandomVerticalFlip
from fastload.transforms.mixing import CutMix, MixUp
from fastload.transforms.padding import Pad
from fastload.transforms.policies import RandAugment, TrivialAugmentWide
from fastload.transforms.rescaling import Normalize, ToDtype
from fastload.transforms.resizing import Resize
from fastload.transforms.transform import Transform
from fastload.transforms.warping import RandomAffine, RandomRotation

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "MixUp",
    "Normalize",
    "Pad",
    "RandAugment",
    "RandomAffine",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "Transform",
    "TrivialAugmentWide",
]
