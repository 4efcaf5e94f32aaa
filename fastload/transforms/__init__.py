"""Image transforms with torchvision's names, parameters and meaning.

    import fastload.transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = fastload.PackedDataset("photos.fl", transform=train)

All of torchvision's names for images are here, from its first version and from v2. docs/transforms.md
describes the differences, and the cost of other libraries' transforms.
"""

from __future__ import annotations

from typing import Any

from fastload.transforms._autoaugment import AugMix, AutoAugment, AutoAugmentPolicy
from fastload.transforms._choosing import RandomApply, RandomChoice, RandomOrder
from fastload.transforms._colour import (
    RGB,
    ColorJitter,
    Grayscale,
    RandomChannelPermutation,
    RandomGrayscale,
    RandomPhotometricDistort,
)
from fastload.transforms._degradation import JPEG, GaussianBlur, GaussianNoise
from fastload.transforms._distorting import ElasticTransform, RandomAffine, RandomPerspective, RandomRotation
from fastload.transforms._levels import (
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from fastload.transforms._missing import (
    ClampBoundingBoxes,
    ClampKeyPoints,
    ConvertBoundingBoxFormat,
    RandomIoUCrop,
    SanitizeBoundingBoxes,
    SanitizeKeyPoints,
    SetClampingMode,
    UniformTemporalSubsample,
)
from fastload.transforms._mixing import CutMix, MixUp
from fastload.transforms._policies import RandAugment, TrivialAugmentWide
from fastload.transforms._resizing import RandomResize, RandomShortestSize, Resize, ScaleJitter
from fastload.transforms.compose import Compose
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
from fastload.transforms.cropping import CenterCrop, FiveCrop, RandomCrop, RandomResizedCrop, TenCrop
from fastload.transforms.erasing import RandomErasing
from fastload.transforms.flipping import RandomHorizontalFlip, RandomVerticalFlip
from fastload.transforms.options import InterpolationMode
from fastload.transforms.padding import Pad, RandomZoomOut
from fastload.transforms.rescaling import LinearTransformation, Normalize, ToDtype
from fastload.transforms.transform import Transform

# fmt: off
__all__ = [
    "JPEG", "RGB", "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ClampBoundingBoxes",
    "ClampKeyPoints", "ColorJitter", "Compose", "ConvertBoundingBoxFormat", "ConvertImageDtype", "CutMix",
    "ElasticTransform", "FiveCrop", "GaussianBlur", "GaussianNoise", "Grayscale", "Identity",
    "InterpolationMode", "Lambda", "LinearTransformation", "MixUp", "Normalize", "PILToTensor", "Pad",
    "RandAugment", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChannelPermutation", "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing",
    "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert", "RandomIoUCrop", "RandomOrder",
    "RandomPerspective", "RandomPhotometricDistort", "RandomPosterize", "RandomResize",
    "RandomResizedCrop", "RandomRotation", "RandomShortestSize", "RandomSolarize", "RandomVerticalFlip",
    "RandomZoomOut", "Resize", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "ScaleJitter",
    "SetClampingMode", "TenCrop", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor",
    "Transform", "TrivialAugmentWide", "UniformTemporalSubsample",
]

_MODULES = ("functional", "v2", "autoaugment", "transforms")
_FUNCTIONS = (
    "check_type", "get_bounding_boxes", "get_keypoints", "has_all", "has_any", "query_chw", "query_size",
)
# fmt: on


def elsewhere(name: str) -> str:
    """Return the error message for one of torchvision's modules and functions, which are not here."""
    if name == "v2":
        return "fastload.transforms has no 'v2': the names of torchvision's are in fastload.transforms itself"
    kind = "module" if name in _MODULES else "function"
    return (
        f"fastload.transforms has no {name!r}, a {kind} of torchvision's: take it from "
        "torchvision.transforms.v2; these transforms accept its results"
    )


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _FUNCTIONS:
        raise AttributeError(elsewhere(name))
    raise AttributeError(f"module 'fastload.transforms' has no attribute {name!r}")
