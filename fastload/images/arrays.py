"""Types of images in memory."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Pixels = NDArray[Any]  # (height, width, channels), or (images, height, width, channels) for a batch
Size = tuple[int, int]  # height, width
