"""Transforms with torchvision's names, parameters and meaning, for what a training's hot path needs.

    import fastload.transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = fastload.PackedDataset("photos.fl", transform=train)

All of torchvision's names for images are here, of its first and of its second version. docs/transforms.md
says what each one does differently, and what any other library's transform costs.
"""

from __future__ import annotations

from typing import Any

from fastload.transforms.augmix import AugMix
from fastload.transforms.autoaugment import AutoAugment
from fastload.transforms.blurring import GaussianBlur
from fastload.transforms.channels import RGB, RandomChannelPermutation, RandomPhotometricDistort
from fastload.transforms.choosing import RandomChoice, RandomOrder
from fastload.transforms.colour import ColorJitter, Grayscale, RandomGrayscale
from fastload.transforms.compose import Compose, RandomApply
from fastload.transforms.compressing import JPEG
from fastload.transforms.converting import (
    ConvertImageDtype,
    Identity,
    Lambda,
    PILToTensor,
    ToImage,
    ToPILImage,
    ToPureTensor,
    ToTensor,
)
from fastload.transforms.cropping import CenterCrop, RandomCrop, RandomResizedCrop
from fastload.transforms.distorting import ElasticTransform, RandomPerspective
from fastload.transforms.erasing import RandomErasing
from fastload.transforms.flipping import RandomHorizontalFlip, RandomVerticalFlip
from fastload.transforms.linear import LinearTransformation
from fastload.transforms.missing import (
    ClampBoundingBoxes,
    ClampKeyPoints,
    ConvertBoundingBoxFormat,
    RandomIoUCrop,
    SanitizeBoundingBoxes,
    SanitizeKeyPoints,
    SetClampingMode,
    UniformTemporalSubsample,
)
from fastload.transforms.mixing import CutMix, MixUp
from fastload.transforms.modes import AutoAugmentPolicy, InterpolationMode
from fastload.transforms.noise import GaussianNoise
from fastload.transforms.padding import Pad
from fastload.transforms.policies import RandAugment, TrivialAugmentWide
from fastload.transforms.rescaling import Normalize, ToDtype
from fastload.transforms.resizing import Resize
from fastload.transforms.scaling import RandomResize, RandomShortestSize, ScaleJitter
from fastload.transforms.several import FiveCrop, TenCrop
from fastload.transforms.tones import (
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from fastload.transforms.transform import Transform
from fastload.transforms.warping import RandomAffine, RandomRotation
from fastload.transforms.zooming import RandomZoomOut

__all__ = [
    "JPEG",
    "RGB",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "ConvertImageDtype",
    "CutMix",
    "ElasticTransform",
    "FiveCrop",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "Identity",
    "InterpolationMode",
    "Lambda",
    "LinearTransformation",
    "MixUp",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "ScaleJitter",
    "SetClampingMode",
    "TenCrop",
    "ToDtype",
    "ToImage",
    "ToPILImage",
    "ToPureTensor",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "UniformTemporalSubsample",
]

_ELSEWHERE = {
    **dict.fromkeys(("functional", "v2", "autoaugment", "transforms"), "a module of torchvision's"),
    **dict.fromkeys(
        (
            "check_type",
            "get_bounding_boxes",
            "get_keypoints",
            "has_all",
            "has_any",
            "query_chw",
            "query_size",
        ),
        "a function of torchvision's for inputs of several kinds",
    ),
}


def elsewhere(name: str) -> str:
    """The sentence that says where a module or a function of torchvision's is."""
    if name == "v2":
        return "fastload.transforms has no 'v2': the names of torchvision's are in fastload.transforms itself"
    return (
        f"fastload.transforms has no {name!r}, {_ELSEWHERE[name]}: take it from torchvision.transforms.v2, "
        "its results may be given to these transforms"
    )


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise AttributeError(elsewhere(name))
    raise AttributeError(f"module 'fastload.transforms' has no attribute {name!r}")
