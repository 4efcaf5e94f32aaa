"""FiveCrop and TenCrop: several images of one, as a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import OptionError
from fastload.transforms.compose import TakesPictures
from fastload.transforms.cropping import CenterCrop
from fastload.transforms.transform import Pixels, like, to_pixels, to_size


class FiveCrop(TakesPictures):
    """Crops the four corners and the middle.

    It gives a tuple, and so what comes after it in a Compose must take one: mostly a Lambda.

    Args:
        size: Of the crops: pixels, or (height, width).

    Raises:
        OptionError: It is none; on use, an image is smaller.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = to_size(size)

    def __call__(self, image: Any) -> tuple[Any, ...]:
        """The crops: upper left, upper right, lower left, lower right, middle; of the image's kind."""
        return tuple(like(image, crop) for crop in self._crops(to_pixels(image)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size!r})"

    def _crops(self, pixels: Pixels) -> list[Pixels]:
        height, width = self.size
        rows, columns = pixels.shape[-3:-1]
        if height > rows or width > columns:
            raise OptionError(
                f"{type(self).__name__} of {self.size} must fit into the image, got {rows}x{columns}: "
                "choose a smaller size or Resize before"
            )
        middle = CenterCrop(self.size).draw(None, np.array([[rows, columns]]))[0]  # type: ignore[arg-type]
        places = [(0, 0), (0, columns - width), (rows - height, 0), (rows - height, columns - width)]
        return [
            pixels[..., top : top + height, left : left + width, :]
            for top, left in [*places, (int(middle[0]), int(middle[1]))]
        ]


class TenCrop(FiveCrop):
    """Crops the four corners and the middle, and the same of the image mirrored.

    It gives a tuple, and so what comes after it in a Compose must take one: mostly a Lambda.

    Args:
        size: Of the crops: pixels, or (height, width).
        vertical_flip: Whether it is mirrored upside down; else left to right.

    Raises:
        OptionError: It is none; on use, an image is smaller.
    """

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def __repr__(self) -> str:
        return f"TenCrop(size={self.size!r}, vertical_flip={self.vertical_flip!r})"

    def _crops(self, pixels: Pixels) -> list[Pixels]:
        mirrored = np.flip(pixels, -3 if self.vertical_flip else -2)
        return super()._crops(pixels) + [crop.copy() for crop in super()._crops(mirrored)]
