"""Image transforms with torchvision's names, parameters and meaning.

    import fastload.transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = fastload.PackedDataset("photos.fl", transform=train)

All of torchvision's transforms of images are here, from its first version and from v2. The page "Transforms"
of the documentation describes the differences, and the cost of other libraries' transforms.
"""

from __future__ import annotations

from typing import Any

from fastload.transforms._autoaugment import AugMix, AutoAugment, AutoAugmentPolicy
from fastload.transforms._colour import (
    RGB,
    ColorJitter,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from fastload.transforms._distorting import ElasticTransform, RandomAffine, RandomPerspective, RandomRotation
from fastload.transforms._mixing import CutMix, MixUp
from fastload.transforms._mosaics import LetterBox, Mosaic, ObjectPerspective, RandomHSV
from fastload.transforms._object_mixing import CopyPaste, ObjectCutMix, ObjectMixUp
from fastload.transforms._objects import ClampBoundingBoxes, RandomIoUCrop, SanitizeBoundingBoxes
from fastload.transforms._policies import RandAugment, TrivialAugmentWide
from fastload.transforms._resizing import (
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    Resize,
    ScaleJitter,
)
from fastload.transforms.compose import Compose, RandomApply, RandomChoice, RandomOrder
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
from fastload.transforms.cropping import CenterCrop, FiveCrop, Pad, RandomCrop, RandomZoomOut, TenCrop
from fastload.transforms.degradation import JPEG, GaussianBlur, GaussianNoise, RandomErasing
from fastload.transforms.flipping import RandomHorizontalFlip, RandomVerticalFlip
from fastload.transforms.options import InterpolationMode
from fastload.transforms.rescaling import LinearTransformation, Normalize, ToDtype
from fastload.transforms.transform import Transform

# fmt: off
__all__ = [
    "JPEG", "RGB", "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ClampBoundingBoxes",
    "ColorJitter", "Compose", "ConvertImageDtype", "CopyPaste", "CutMix", "ElasticTransform", "FiveCrop",
    "GaussianBlur", "GaussianNoise", "Grayscale", "Identity", "InterpolationMode", "Lambda", "LetterBox",
    "LinearTransformation", "MixUp", "Mosaic",
    "Normalize", "ObjectCutMix", "ObjectMixUp", "ObjectPerspective", "PILToTensor", "Pad",
    "RandAugment", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChannelPermutation", "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing",
    "RandomGrayscale", "RandomHSV", "RandomHorizontalFlip", "RandomInvert", "RandomIoUCrop",
    "RandomOrder", "RandomPerspective", "RandomPhotometricDistort", "RandomPosterize", "RandomResize",
    "RandomResizedCrop", "RandomRotation", "RandomShortestSize", "RandomSolarize", "RandomVerticalFlip",
    "RandomZoomOut", "Resize", "SanitizeBoundingBoxes", "ScaleJitter", "TenCrop", "ToDtype", "ToImage",
    "ToPILImage", "ToPureTensor", "ToTensor", "Transform", "TrivialAugmentWide",
]
# fmt: on


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'fastload.transforms' has no attribute {name!r}: torchvision's functions, and its "
        "transforms of box formats, separate keypoints and videos, are in torchvision.transforms.v2"
    )
