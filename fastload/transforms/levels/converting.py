"""Conversions between tensors, PIL images and arrays, which leave pixels unchanged; and Lambda.

fastload's own transforms need no conversion between them, so in a dataset's pipeline these cost nothing. A
Lambda or another library's transform after a conversion gets the type of image that it returns.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, with_last_axis
from fastload.transforms.compose import AnyTransform, TakesPILImages
from fastload.transforms.levels.rescaling import ToDtype, rescaled
from fastload.transforms.options import Described, require
from fastload.transforms.pixels import Image, is_pil, to_pixels, to_tensor
from fastload.transforms.samples import SampleParts
from fastload.transforms.transform import ColourTransform, Parameters, PixelKeeping, is_image

_Value = TypeVar("_Value")


class Conversion(PixelKeeping, ColourTransform):
    """Base class of transforms that change only the type of an image."""

    def on_device(self, images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        return images


class Identity(Conversion):
    """Leaves images as they are."""

    def of_image(self, image: Image) -> Image:
        """Return the image itself."""
        return image


class PILToTensor(Conversion):
    """Converts a PIL image or an array to a tensor (channels, height, width), with the same levels."""

    def of_image(self, image: Image) -> Image:
        """Return the image as a tensor; a tensor is returned itself."""
        return image if isinstance(image, torch.Tensor) else to_tensor(_to_pixels(image)).contiguous()


class ToImage(PILToTensor):
    """Does what PILToTensor does; torchvision's returns a `tv_tensors.Image`, this a plain tensor."""


class ToPureTensor(Conversion):
    """Converts subclasses of torch.Tensor, such as torchvision's `tv_tensors.Image`, to plain tensors."""

    def of_image(self, image: Image) -> Image:
        """Return a tensor as a plain tensor; anything else is returned unchanged."""
        return _pure(image)

    def of_sample(self, structure: object) -> object:
        """Return a sample with all its tensors, boxes and masks too, as plain tensors."""
        sample = SampleParts(structure)
        return sample.converted(list(map(self.of_image, sample.images)), lambda leaf, _: _pure(leaf))


class ToTensor(ToDtype):
    """Converts images to floating-point tensors (channels, height, width); uint8 0…255 becomes 0…1.

    Pixels of other dtypes keep their values and dtype. torchvision refuses tensors here, or returns them
    unchanged; this accepts them, so that it does the same anywhere in a Compose.
    """

    _only_uint8 = True

    def __init__(self) -> None:
        super().__init__(torch.float32, scale=True)

    @property
    def _image_dtype(self) -> torch.dtype:
        return torch.get_default_dtype()

    def of_image(self, image: Image) -> Image:
        """Return the image as a tensor of floating-point numbers."""
        if isinstance(image, torch.Tensor):
            return rescaled(image, [self])
        pixels = _to_pixels(image)
        if pixels.dtype == bool:
            pixels = pixels * np.uint8(255)
        return rescaled(to_tensor(pixels), [self]).contiguous()


class ConvertImageDtype(ToDtype):
    """Does what `ToDtype` does with `scale=True`."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype, scale=True)


class ToPILImage(Described):
    """Converts a tensor or an array to a PIL image; floating-point numbers 0…1 become bytes.

    `mode` is PIL's mode, if the number of channels and their dtype leave a choice. Using the transform raises
    `OptionError` if PIL has no such image.
    """

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, *inputs: object) -> Any:
        """Return the image as a PIL image, or a sample with its images so; a PIL image is returned itself."""
        structure: object = inputs[0] if len(inputs) == 1 else inputs
        if not is_image(structure):
            sample = SampleParts(structure)
            return sample.rebuilt([self(image) for image in sample.images])
        if is_pil(structure):
            return structure
        if isinstance(structure, torch.Tensor) and structure.ndim == 2:
            structure = structure[None]
        pixels = to_pixels(structure)
        if np.issubdtype(pixels.dtype, np.floating) and self.mode != "F":
            pixels = (pixels * 255).astype(np.uint8)
        modes = _PIL_MODES.get((pixels.shape[-1], pixels.dtype.name), [])
        if pixels.ndim != 3 or not modes or self.mode not in (None, *modes):
            raise OptionError(
                f"ToPILImage(mode={self.mode!r}) must be given an image that fits the mode, got "
                f"{pixels.dtype} {pixels.shape}"
            )
        plane = np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        from PIL import Image

        # Not Image.fromarray, which accepts only modes that it can infer.
        return Image.frombytes(self.mode or modes[0], (pixels.shape[1], pixels.shape[0]), plane.tobytes())


class Lambda(TakesPILImages):
    """Calls a function with the image that torchvision's transforms would be given in a Compose.

    Images of other types than `types` are returned unchanged; none given means all types.
    """

    def __init__(self, lambd: AnyTransform, *types: type) -> None:
        require(callable(lambd), "lambd must be callable", lambd)
        self.lambd = lambd
        self.types = types or (object,)

    def __call__(self, *inputs: object) -> Any:
        """Return the result of the function."""
        if len(inputs) != 1:
            raise OptionError(
                f"{self!r} must be called with an image alone, which would leave its target behind: use a "
                "function of (image, target) in its place"
            )
        return self.lambd(inputs[0]) if isinstance(inputs[0], self.types) else inputs[0]

    def __repr__(self) -> str:
        return f"Lambda({getattr(self.lambd, '__name__', repr(self.lambd))})"


_SIXTEEN_BITS = "I;16" if sys.byteorder == "little" else "I;16B"

# PIL's modes for a number of channels and a dtype; the first is torchvision's choice.
_PIL_MODES = {
    (1, "uint8"): ["L"],
    (1, "int16"): [_SIXTEEN_BITS],
    (1, "uint16"): [_SIXTEEN_BITS],
    (1, "int32"): ["I"],
    (1, "float32"): ["F"],
    (2, "uint8"): ["LA"],
    (3, "uint8"): ["RGB", "YCbCr", "HSV"],
    (4, "uint8"): ["RGBA", "CMYK", "RGBX"],
}


def _pure(value: _Value) -> _Value | torch.Tensor:
    return value.as_subclass(torch.Tensor) if isinstance(value, torch.Tensor) else value


def _to_pixels(image: Image) -> Pixels:
    """Return an image as an array (height, width, channels); PIL images of any mode keep their numbers."""
    return with_last_axis(np.array(image)) if is_pil(image) else to_pixels(image)
