"""JPEG: what compression makes of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastload.errors import OptionError
from fastload.images.decode import decode, encode
from fastload.images.opencv import cv2
from fastload.transforms import adjusting
from fastload.transforms.draws import Draws, integers
from fastload.transforms.geometry import Sizes
from fastload.transforms.layout import contiguous
from fastload.transforms.transform import Parameters, Pixels, Transform, is_whole


class JPEG(Transform):
    """Compresses an image as JPEG does, and decompresses it.

    Args:
        quality: From 1 to 100, or the range (low, high), both included.

    Raises:
        OptionError: It is none of these.
    """

    width = 1

    def __init__(self, quality: int | Sequence[int]) -> None:
        qualities: list[Any] = list(quality) if isinstance(quality, (tuple, list)) else [quality, quality]
        if (
            len(qualities) != 2
            or not all(map(is_whole, qualities))
            or not 1 <= qualities[0] <= qualities[1] <= 100
        ):
            raise OptionError(
                f"quality must be a whole number from 1 to 100, or a range (low, high), got {quality!r}"
            )
        self.quality: tuple[int, int] = (qualities[0], qualities[1])

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Qualities."""
        low, high = self.quality
        return (low + integers(draws.uniform(1), high - low + 1)).astype(np.float64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Compresses."""
        adjusting.require_channels(image)
        pixels = contiguous(image)
        data = encode(
            pixels[:, :, 0] if pixels.shape[2] == 1 else pixels,
            ".jpg",
            (cv2.IMWRITE_JPEG_QUALITY, int(parameters[0])),
        )
        return decode(data)[:, :, : image.shape[2]]
