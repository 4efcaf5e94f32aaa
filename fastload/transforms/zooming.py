"""RandomZoomOut: an image becomes a part of a larger one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastload.errors import OptionError
from fastload.transforms.draws import Draws
from fastload.transforms.geometry import Sizes
from fastload.transforms.padding import crop_padded
from fastload.transforms.transform import (
    Parameters,
    Pixels,
    Transform,
    to_colour,
    to_pair,
    to_probability,
)


class RandomZoomOut(Transform):
    """Puts some images anywhere on a larger canvas of one colour.

    Liu et al., "SSD: Single Shot MultiBox Detector", https://arxiv.org/abs/1512.02325.

    Args:
        fill: The canvas's colour: a number, or one for each channel.
        side_range: The range of factors by which sides become longer.
        p: The share of images that it is done to.

    Raises:
        OptionError: A parameter is none of these.
    """

    width = 4
    takes_any_dtype = True

    def __init__(
        self,
        fill: float | Sequence[float] = 0,
        side_range: Sequence[float] = (1.0, 4.0),
        p: float = 0.5,
    ) -> None:
        self.fill = fill
        self.side_range = to_pair(side_range, "side_range")
        self.p = to_probability(p)
        to_colour(fill)
        if not 1 <= self.side_range[0] <= self.side_range[1]:
            raise OptionError(f"side_range must be (low, high) factors of at least 1, got {side_range!r}")

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Boxes (top, left, height, width), which leave the image by what is filled."""
        numbers = draws.uniform(4)
        low, high = self.side_range
        factors = np.where(numbers[:, :1] < self.p, low + (high - low) * numbers[:, 1:2], 1)
        canvas = np.floor(sizes * factors)
        offsets = np.floor((canvas - sizes) * numbers[:, 2:])
        return np.concatenate((-offsets, canvas), axis=1)

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The canvas's."""
        return parameters[:, 2:].astype(np.int64)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Pads."""
        top, left, height, width = map(int, parameters)
        return crop_padded(image, top, left, height, width, self.fill)
