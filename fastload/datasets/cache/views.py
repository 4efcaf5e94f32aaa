"""Images on a device as views of stored ones: crops, padding and flips as one gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.transforms.transform import to_colour

Ints = NDArray[np.int64]


class GatheredView:
    """Images whose every row and column is one of a stored image, or padding (-1).

    `source` is (any number, height, width, channels); `chosen` are the numbers of the images.
    """

    def __init__(self, source: torch.Tensor, chosen: Ints) -> None:
        self._reset(source, chosen)

    def _reset(self, source: torch.Tensor, chosen: Ints) -> None:
        self._source = source
        self._chosen = chosen
        self._axes = [np.tile(np.arange(side), (len(chosen), 1)) for side in source.shape[1:3]]
        self._fill: NDArray[Any] | None = None

    @property
    def sizes(self) -> Ints:
        """Heights and widths: (images, 2)."""
        return np.tile(np.array([axis.shape[1] for axis in self._axes]), (len(self._chosen), 1))

    def flip(self, axis: int, which: NDArray[np.bool_]) -> None:
        """Flip some images."""
        rows = self._axes[axis].copy()
        rows[which] = rows[which, ::-1]
        self._axes[axis] = rows

    def window(self, boxes: Ints, fill: Any, mode: str) -> None:
        """Crop a window (top, left, height, width) of each image; it may reach beyond the image."""
        colour = np.array(to_colour(fill, self._source.shape[3])[: self._source.shape[3]])
        if self._fill is not None and mode == "constant" and not np.array_equal(self._fill, colour):
            self.replace(self.images())
        for axis in (0, 1):
            side = self._axes[axis].shape[1]
            wanted = boxes[:, axis, None] + np.arange(int(boxes[0, axis + 2]))
            within = source_places(wanted, side, mode)
            taken = np.take_along_axis(self._axes[axis], np.maximum(within, 0), axis=1)
            self._axes[axis] = np.where(within < 0, -1, taken)
        if mode == "constant":
            self._fill = colour

    def images(self) -> torch.Tensor:
        """Return the images: (images, height, width, channels)."""
        device = self._source.device
        rows, columns = (torch.from_numpy(np.ascontiguousarray(axis)).to(device) for axis in self._axes)
        chosen = torch.from_numpy(self._chosen).to(device)
        images = self._source[
            chosen[:, None, None], rows.clamp(min=0)[:, :, None], columns.clamp(min=0)[:, None]
        ]
        if any((axis < 0).any() for axis in self._axes):
            is_padding = (rows < 0)[:, :, None] | (columns < 0)[:, None]
            fill = torch.from_numpy(np.asarray(self._fill)).to(device).to(images.dtype)
            images = torch.where(is_padding[..., None], fill, images)
        return images

    def replace(self, images: torch.Tensor) -> None:
        """Replace the images by others."""
        self._reset(images, np.arange(len(images)))


def source_places(wanted: Ints, side: int, mode: str) -> Ints:
    """Return which of a side's pixels stands at a place that may lie outside; -1 for padding."""
    if mode == "constant":
        return np.where((wanted < 0) | (wanted >= side), -1, wanted)
    if mode == "edge":
        return np.clip(wanted, 0, side - 1)
    if mode == "symmetric":
        folded = wanted % (2 * side)
        return np.minimum(folded, 2 * side - 1 - folded)
    period = max(1, 2 * (side - 1))
    folded = wanted % period
    return np.minimum(folded, period - folded)
