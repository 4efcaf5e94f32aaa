"""Largest image sizes that decoders read."""

from __future__ import annotations

MOST_PIXELS = 1 << 30  # OpenCV's CV_IO_MAX_IMAGE_PIXELS
MOST_BYTES = (1 << 31) - 1  # of a file in memory: OpenCV counts them with an int

# The longest side in pixels: libjpeg's JPEG_MAX_DIMENSION, libpng's PNG_USER_WIDTH_MAX.
LARGEST_SIDES = {"jpeg": 65_500, "png": 1_000_000}
