"""Image sizes: which one a limit asks for, and resampling to it."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError

_MAX_SIDE = 65_500  # the largest that libjpeg writes


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """How large images may be. Exactly one of the three is given.

    Attributes:
        max_side: Larger images shrink, keeping their proportions, until their longer side is this.
        shorter_side: Larger images shrink, keeping their proportions, until their shorter side is
            this; with torchvision's `Resize(shorter_side)`'s rounding.
        size: (height, width) that every image gets, whatever its proportions.

    Raises:
        OptionError: None or several are given, or one is no positive number of pixels.
    """

    max_side: int | None = None
    shorter_side: int | None = None
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if sum(limit is not None for limit in (self.max_side, self.shorter_side, self.size)) != 1:
            raise OptionError(f"a size limit must be one of max_side, shorter_side and size, got {self}")
        if self.size is not None and not (isinstance(self.size, tuple) and len(self.size) == 2):
            raise OptionError(f"a size must be (height, width), got {self.size!r}")
        for side in self.size or (self.max_side, self.shorter_side):
            if side is not None and not (isinstance(side, int) and side >= 1):
                raise OptionError(f"a size limit must be at least one pixel, and whole pixels, got {side!r}")
            if side is not None and side > _MAX_SIDE:
                raise OptionError(f"a size limit must be at most {_MAX_SIDE} pixels, got {side}")

    def target(self, height: int, width: int) -> tuple[int, int] | None:
        """The size that an image of this size must get.

        Returns:
            (height, width); None where the image is to be left alone.
        """
        longer, shorter = max(height, width), min(height, width)
        for limit, side in ((self.max_side, longer), (self.shorter_side, shorter)):
            if limit is not None and side > limit:
                # Rounded down, as torchvision does.
                return max(1, height * limit // side), max(1, width * limit // side)
        return self.size if self.size != (height, width) else None


def resize(image: NDArray[np.uint8], height: int, width: int, antialias: bool = True) -> NDArray[np.uint8]:
    """Resamples an image bilinearly.

    With antialiasing it equals PIL, and so torchvision, within one level: PyTorch's uint8 kernel in
    80 us for 260x262 to 224x224, where PIL takes 480. Without, it is OpenCV's INTER_LINEAR, which
    skips source pixels when it shrinks.

    Args:
        image: uint8, (height, width, channels); one that is read-only or not contiguous is copied.
        height: Of the result, in pixels.
        width: Of the result, in pixels.
        antialias: Whether every source pixel counts when shrinking.

    Returns:
        uint8, (height, width, channels), contiguous.
    """
    out = np.empty((height, width, image.shape[2]), np.uint8)
    if antialias:
        _resize_antialiased(np.require(image, requirements=("C", "W")), out)
    else:
        cv2.resize(image, (width, height), dst=out, interpolation=cv2.INTER_LINEAR)
    return out


def _resize_antialiased(image: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    import torch

    def channels_last(pixels: NDArray[np.uint8]) -> torch.Tensor:
        # `tensor[None]` would give the batch a stride of 0, which torch takes for NCHW: the result
        # would come out planar, and 170 us later. These strides leave no doubt.
        height, width, channels = pixels.shape
        shape = (1, channels, height, width)
        strides = (height * width * channels, 1, width * channels, channels)
        return torch.from_numpy(pixels).as_strided(shape, strides)

    torch.ops.aten._upsample_bilinear2d_aa.out(
        channels_last(image), list(out.shape[:2]), False, None, None, out=channels_last(out)
    )
