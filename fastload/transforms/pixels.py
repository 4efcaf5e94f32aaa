"""Conversions between types of images (tensor, array, PIL image) and between their memory layouts."""

from __future__ import annotations

import sys
from typing import Protocol, TypeAlias, TypeGuard

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size, with_last_axis
from fastload.images.opencv import cv2


class PilImage(Protocol):
    """A PIL image, without importing PIL."""

    mode: str
    width: int
    height: int

    def convert(self, mode: str) -> PilImage:
        """Return the image in another mode."""


Image: TypeAlias = "torch.Tensor | Pixels | PilImage"
"""A tensor (channels, height, width), an array (height, width, channels), a PIL image, or a batch of such."""


def to_pixels(image: object) -> Pixels:
    """Return an image of any type as an array (height, width, channels), a batch with one more axis first."""
    if isinstance(image, np.ndarray):
        pixels = image[:, :, None] if image.ndim == 2 else image
        # NumPy regards sides of one pixel as contiguous whatever their stride, torch does not.
        if 1 in pixels.shape and min(pixels.strides) < 0:
            pixels = pixels.copy()
    elif isinstance(image, torch.Tensor):
        if image.dtype == torch.bfloat16:
            rule = "an image must have a dtype that NumPy has"
            raise OptionError(f"{rule}, got bfloat16: convert to it at the end")
        pixels = np.moveaxis(image.detach().cpu().numpy(), -3, -1) if image.ndim in (3, 4) else np.empty(0)
    elif is_pil(image):
        if image.mode.startswith(("I", "F")):
            # PIL would turn every level above 255 into 255.
            raise OptionError(
                f"a PIL image must have 8 bits a channel, got mode {image.mode!r}, which ToTensor and "
                "PILToTensor accept: put one of them before this transform"
            )
        has_mode = image.mode in ("L", "RGB", "RGBA")
        pixels = with_last_axis(np.asarray(image if has_mode else image.convert("RGB")))
    else:
        raise OptionError(f"an image must be a tensor, an array or a PIL image, got {type(image).__name__}")
    if pixels.ndim not in (3, 4) or 0 in pixels.shape:
        shape = tuple(getattr(image, "shape", ()))
        raise OptionError(
            "an image must be a tensor (channels, height, width), an array (height, width, channels) or a "
            f"PIL image, and not empty, got {type(image).__name__} of shape {shape}"
        )
    return pixels


def size_of(image: Image) -> Size:
    """Return the height and width of an image of any type."""
    if not isinstance(image, (torch.Tensor, np.ndarray)):
        return image.height, image.width
    rows = -2 if isinstance(image, torch.Tensor) or image.ndim == 2 else -3
    return image.shape[rows], image.shape[rows + 1]


def tv_kind(value: object) -> str:
    """Return the name of the class of `torchvision.tv_tensors` of a value, or "", without importing it."""
    module = sys.modules.get("torchvision.tv_tensors")
    if module is None or not isinstance(value, getattr(module, "TVTensor", torch.Tensor)):
        return ""
    kinds = ("BoundingBoxes", "Image", "KeyPoints", "Mask", "Video")
    return next((name for name in kinds if isinstance(value, getattr(module, name, ()))), "")


def like(image: Image, pixels: Pixels) -> Image:
    """Return pixels as an image of the type of `image`, or as a tensor if PIL cannot hold their dtype."""
    if isinstance(image, np.ndarray):
        return pixels[:, :, 0] if image.ndim == 2 and pixels.shape[2] == 1 else pixels
    if isinstance(image, torch.Tensor):
        return as_tv_image(to_tensor(pixels).to(image.device), image)
    return to_pil(pixels) if pixels.dtype == np.uint8 else to_tensor(pixels)


def as_tv_image(tensor: torch.Tensor, image: object) -> torch.Tensor:
    """Return a tensor as a `tv_tensors.Image` if the image that it was made of is one; see `with_grad`."""
    if isinstance(image, torch.Tensor) and tv_kind(image):
        tensor = tensor.as_subclass(type(image))
    return with_grad(tensor, image)


def with_grad(tensor: torch.Tensor, given: object) -> torch.Tensor:
    """Return a tensor of floating-point numbers that requires a gradient if what it was made of does."""
    is_wanted = isinstance(given, torch.Tensor) and given.requires_grad and tensor.is_floating_point()
    return tensor.requires_grad_() if is_wanted else tensor


def to_tensor(pixels: Pixels) -> torch.Tensor:
    """Return a view of an array (..., height, width, channels) as a tensor (..., channels, height, width)."""
    if not pixels.flags.writeable or any(stride < 0 for stride in pixels.strides):
        pixels = pixels.copy(order="K")
    return torch.from_numpy(np.moveaxis(pixels, -1, -3))


def to_pil(pixels: Pixels) -> PilImage:
    """Return an array (height, width, channels) as a PIL image."""
    import PIL.Image

    image: PilImage = PIL.Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    return image


def is_pil(image: object) -> TypeGuard[PilImage]:
    """Return True for a PIL image, without importing PIL."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)


def contiguous(image: Pixels) -> Pixels:
    """Return an image (height, width, channels) in contiguous memory: a copy, unless it is contiguous.

    The channels of a tensor (3, height, width) are separate planes: OpenCV would copy them pixel by pixel, in
    110 µs for 224x224, but merges three planes in 7 µs.
    """
    if image.flags.c_contiguous:
        return image
    planes = np.moveaxis(image, 2, 0)
    if image.dtype == np.uint8 and image.shape[2] == 3 and planes.flags.c_contiguous:
        return np.asarray(cv2.merge(tuple(planes)))
    return np.ascontiguousarray(image)
