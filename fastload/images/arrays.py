"""Types of images in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[Any]  # (height, width, channels), or (images, height, width, channels) for a batch
DType = np.dtype[Any]  # of pixels
Size = tuple[int, int]  # height, width


def with_last_axis(pixels: Pixels) -> Pixels:
    """Add the channel axis that PIL and OpenCV leave out of images with one channel."""
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
