"""Changes of an image's kind, of which the pixels stay as they are: tensors, PIL images; and Lambda.

Between fastload's own transforms there is nothing to convert, so in a dataset's pipeline these cost nothing.
What comes after them, another library's or a Lambda, is given the kind that they name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.transforms.compose import TakesPictures
from fastload.transforms.geometry import Geometry
from fastload.transforms.rescaling import ToDtype, rescaled
from fastload.transforms.transform import (
    Parameters,
    Pixels,
    Transform,
    is_pil,
    to_pixels,
    to_tensor,
)


class Conversion(Transform):
    """What changes an image's kind alone."""

    takes_any_dtype = True

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """Nothing."""
        return True

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """The image itself."""
        return image

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """The images themselves."""
        return images

    def __call__(self, image: Any) -> Any:
        """The image as another kind."""
        raise NotImplementedError


class Identity(Conversion):
    """Leaves an image as it is."""

    def __call__(self, image: Any) -> Any:
        """The image itself."""
        return image


class PILToTensor(Conversion):
    """Makes a tensor (channels, height, width) of a PIL image or an array; levels stay as they are."""

    def __call__(self, image: Any) -> Any:
        """A tensor; one that is given stays as it is."""
        if isinstance(image, torch.Tensor):
            return image
        return to_tensor(_of_pil(image) if is_pil(image) else to_pixels(image)).contiguous()


class ToImage(PILToTensor):
    """Makes a tensor (channels, height, width) of a PIL image or an array; levels stay as they are.

    torchvision's gives a `tv_tensors.Image`, this a plain tensor.
    """


class ToPureTensor(Conversion):
    """Makes a plain tensor of a subclass of torch.Tensor, such as torchvision's `tv_tensors.Image`."""

    def __call__(self, image: Any) -> Any:
        """A tensor of a tensor; all else stays as it is."""
        return image.as_subclass(torch.Tensor) if isinstance(image, torch.Tensor) else image


class ToTensor(ToDtype):
    """Makes a tensor of floating-point numbers, (channels, height, width); bytes, 0…255, become 0…1.

    What is not made of bytes keeps its numbers and their type. torchvision refuses tensors here, or leaves
    them as they are; this takes them, so that it does the same wherever it stands in a Compose.
    """

    _is_of_bytes = True

    def __init__(self) -> None:
        super().__init__(torch.get_default_dtype(), scale=True)

    def __call__(self, image: Any) -> Any:
        """A tensor of the numbers of an image."""
        if isinstance(image, torch.Tensor):
            return rescaled(image, [self])
        pixels = _of_pil(image) if is_pil(image) else to_pixels(image)
        if pixels.dtype == bool:
            pixels = pixels * np.uint8(255)
        return rescaled(to_tensor(pixels), [self]).contiguous()

    def __repr__(self) -> str:
        return "ToTensor()"


class ConvertImageDtype(ToDtype):
    """Turns pixels into another type; in a floating-point one, 0…255 becomes 0…1.

    Args:
        dtype: The type.

    Raises:
        OptionError: It is no floating-point type, nor uint8.
    """

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype, scale=True)

    def __repr__(self) -> str:
        return f"ConvertImageDtype(dtype={self.dtype!r})"


class ToPILImage:
    """Makes a PIL image of a tensor or an array; floating-point numbers, 0…1, become bytes.

    Args:
        mode: PIL's name of the kind of image, where the number of channels and their type leave a choice.

    Raises:
        OptionError: On use, there is no such image.
    """

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, image: Any) -> Any:
        """A PIL image; one that is given stays as it is."""
        if is_pil(image):
            return image
        pixels = to_pixels(image)
        if np.issubdtype(pixels.dtype, np.floating) and self.mode != "F":
            pixels = (pixels * 255).astype(np.uint8)
        kind = _MODES.get((pixels.shape[-1], pixels.dtype.name), [])
        if pixels.ndim != 3 or not kind or self.mode not in (None, *kind):
            raise OptionError(
                f"ToPILImage(mode={self.mode!r}) must be given an image that PIL can hold so, got "
                f"{pixels.dtype} {pixels.shape}"
            )
        mode = self.mode or kind[0]
        plane = np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        from PIL import Image

        # Not by Image.fromarray: it takes no name of what it cannot find out by itself.
        return Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), plane.tobytes())

    def __repr__(self) -> str:
        return f"ToPILImage(mode={self.mode!r})"


class Lambda(TakesPictures):
    """Calls a function with the image, as torchvision's transforms are called in a Compose.

    Args:
        lambd: The function.
        types: Of images that it is called with; others stay as they are. None named: all.

    Raises:
        OptionError: It is no function.
    """

    def __init__(self, lambd: Callable[[Any], Any], *types: type) -> None:
        if not callable(lambd):
            raise OptionError(f"lambd must be callable, got {lambd!r}")
        self.lambd = lambd
        self.types = types or (object,)

    def __call__(self, image: Any) -> Any:
        """What the function makes of it."""
        return self.lambd(image) if isinstance(image, self.types) else image

    def __repr__(self) -> str:
        return f"Lambda({getattr(self.lambd, '__name__', repr(self.lambd))})"


_SIXTEEN = "I;16" if sys.byteorder == "little" else "I;16B"

# The modes that PIL has for so many channels of a type; the first is torchvision's choice.
_MODES = {
    (1, "uint8"): ["L"],
    (1, "int16"): [_SIXTEEN],
    (1, "uint16"): [_SIXTEEN],
    (1, "int32"): ["I"],
    (1, "float32"): ["F"],
    (2, "uint8"): ["LA"],
    (3, "uint8"): ["RGB", "YCbCr", "HSV"],
    (4, "uint8"): ["RGBA", "CMYK", "RGBX"],
}


def _of_pil(image: Any) -> Pixels:
    """A PIL image's own numbers, whatever its mode: (height, width, channels)."""
    pixels = np.array(image)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
