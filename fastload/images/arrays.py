"""Types of images in memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.contracts import DType as DType
from fastload.contracts import Pixels as Pixels
from fastload.contracts import Size as Size

StoredBytes: TypeAlias = "bytes | NDArray[np.uint8]"
"""An image as stored, such as a file: its bytes, or a flat view of mapped memory."""


def with_last_axis(pixels: Pixels) -> Pixels:
    """Add the channel axis that PIL and OpenCV leave out of images with one channel."""
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
