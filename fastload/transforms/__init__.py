"""Image transforms with torchvision's names, parameters and meaning.

    import fastload.transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    dataset = fastload.PackedDataset("photos.fl", transform=train)

All of torchvision's transforms of images are here, from its first version and from v2. The page "Transforms"
of the documentation describes the differences, and the cost of other libraries' transforms.
"""

from __future__ import annotations

from fastload.transforms.colour.autoaugment import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    TrivialAugmentWide,
)
from fastload.transforms.colour.degradation import JPEG, GaussianBlur, GaussianNoise, RandomErasing
from fastload.transforms.colour.jittering import (
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
from fastload.transforms.compose import Compose, RandomApply, RandomChoice, RandomOrder
from fastload.transforms.levels.converting import (
    ConvertImageDtype,
    Identity,
    Lambda,
    PILToTensor,
    ToImage,
    ToPILImage,
    ToPureTensor,
    ToTensor,
)
from fastload.transforms.levels.rescaling import Normalize, ToDtype
from fastload.transforms.levels.whitening import LinearTransformation
from fastload.transforms.mixing.batches import CutMix, MixUp
from fastload.transforms.mixing.mosaics import LetterBox, Mosaic, ObjectPerspective, RandomHSV
from fastload.transforms.mixing.objects import CopyPaste, ObjectCutMix, ObjectMixUp
from fastload.transforms.options import InterpolationMode
from fastload.transforms.shapes.boxes import ClampBoundingBoxes, RandomIoUCrop, SanitizeBoundingBoxes
from fastload.transforms.shapes.cropping import (
    CenterCrop,
    FiveCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    RandomZoomOut,
    TenCrop,
)
from fastload.transforms.shapes.distorting import (
    ElasticTransform,
    RandomAffine,
    RandomPerspective,
    RandomRotation,
)
from fastload.transforms.shapes.resizing import (
    RandomResize,
    RandomResizedCrop,
    RandomShortestSize,
    Resize,
    ScaleJitter,
)
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


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"module 'fastload.transforms' has no attribute {name!r}: torchvision's functions, and its "
        "transforms of box formats, separate keypoints and videos, are in torchvision.transforms.v2"
    )
