"""Adjustments of colour, levels and sharpness by a given amount: arrays in, new arrays out.

Each function takes pixels (height, width, channels), possibly read-only or not contiguous, and returns pixels
of the same shape and dtype. It computes what torchvision's function of the same name computes for tensors;
tests/transforms/tolerances.py states how exactly. Brightness, contrast and inversion have a meaning for any
channels, whose plain mean is their grey, the others for 1 or 3.

What depends only on a pixel's own level of 8 bits is looked up in a table of 256 entries; the rest takes
OpenCV a few passes. Other dtypes pass through single precision; white is 1 for floating-point numbers and the
highest level for integers. All but brightness, contrast and inversion are for uint8 alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastload.images.arrays import DType, Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.images.pixel_types import most_of
from fastload.transforms.options import require
from fastload.transforms.pixels import contiguous

_Table = NDArray[np.uint8]  # the new value of each level: (256,), or (1, 256, channels)

_LEVELS = np.arange(256, dtype=np.float32)

# torchvision's weights, in multiples of 1/10,000, so an exact grey level is one too. The offset, about a
# third of that, keeps whole levels, which single precision may make slightly too small, from being rounded
# down to the level below.
_GREY = np.array([[0.2989, 0.587, 0.114, 3e-5]], np.float32)

# torchvision's kernel of a blurred image: 5 in the middle and 1 around it.
_SOFT = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / np.float32(13)


def require_channels(pixels: Pixels) -> None:
    """Raise OptionError unless images have 1 or 3 channels; others may have an alpha channel."""
    channels = pixels.shape[-1]
    require(channels in (1, 3), "an image must have 1 or 3 channels for its colours to change", channels)


def grey(image: Pixels) -> Pixels:
    """Return the grey levels of an image, in as many channels as it has."""
    require_channels(image)
    image = contiguous(image)
    return image if image.shape[2] == 1 else cv2.merge((_grey_plane(image),) * 3)


def brightness(image: Pixels, factor: float) -> Pixels:
    """Multiply levels by a factor of at least 0."""
    if image.dtype != np.uint8:
        return _in_range(image.astype(np.float32) * np.float32(factor), image.dtype)
    return _look_up(image, _truncated(_LEVELS * np.float32(factor)))


def contrast(image: Pixels, factor: float) -> Pixels:
    """Scale the difference from the mean grey by a factor of at least 0."""
    image = contiguous(image)
    if image.dtype != np.uint8 or image.shape[2] not in (1, 3):
        levels = image.astype(np.float32)
        mean = np.float32(_mean_grey(levels, is_whole=image.dtype.kind != "f"))
        return _in_range(levels * np.float32(factor) + mean * np.float32(1 - factor), image.dtype)
    greys = image if image.shape[2] == 1 else _grey_plane(image)
    mean = np.float32(cv2.mean(greys)[0])
    # As in torch: one product is rounded to single precision, then its sum with the other product.
    products = (_LEVELS * np.float32(factor)).astype(np.float64)
    return _look_up(image, _truncated(products + float(mean) * float(np.float32(1 - factor))))


def saturation(image: Pixels, factor: float) -> Pixels:
    """Scale the difference of each pixel from its grey by a factor of at least 0."""
    if image.shape[2] == 1:
        return image
    image = contiguous(image)
    greys = grey(image)
    return cv2.addWeighted(image, factor, greys, 1 - factor, _round_down(factor), dst=greys)


def hue(image: Pixels, turn: float) -> Pixels:
    """Turn colours around the circle of hues, by -0.5 to 0.5 of it."""
    if image.shape[2] == 1:
        return image
    pixels = contiguous(image).astype(np.float32)
    cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV, dst=pixels)
    pixels[:, :, 0] += np.float32(turn % 1 * 360)
    cv2.cvtColor(pixels, cv2.COLOR_HSV2RGB, dst=pixels)
    # torchvision multiplies 0...1 by 255.999 and rounds down.
    return cv2.convertScaleAbs(pixels, alpha=255.999 / 255, beta=_round_down(1))


def sharpness(image: Pixels, factor: float) -> Pixels:
    """Scale the difference from the blurred image by a factor of at least 0, except at the edges."""
    require_channels(image)
    height, width, _ = image.shape
    if height <= 2 or width <= 2:
        return image
    image = contiguous(image)
    soft = cv2.filter2D(image, -1, _SOFT)
    sharp = with_last_axis(cv2.addWeighted(image, factor, soft, 1 - factor, _round_down(factor), dst=soft))
    for edge in (0, -1):
        sharp[edge] = image[edge]
        sharp[:, edge] = image[:, edge]
    return sharp


def invert(image: Pixels) -> Pixels:
    """Invert levels."""
    if image.dtype != np.uint8:
        return np.asarray(image.dtype.type(most_of(image.dtype)) - image)
    return with_last_axis(cv2.bitwise_not(contiguous(image)))


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keep the highest bits of each level."""
    return image if bits >= 8 else np.bitwise_and(contiguous(image), np.uint8(256 - (1 << (8 - bits))))


def solarize(image: Pixels, threshold: float) -> Pixels:
    """Invert levels of at least the threshold."""
    return _look_up(image, np.where(threshold <= _LEVELS, 255 - _LEVELS, _LEVELS).astype(np.uint8))


def autocontrast(image: Pixels) -> Pixels:
    """Stretch each channel over all levels."""
    require_channels(image)
    image = contiguous(image)
    height, width, channels = image.shape
    # Along columns first: NumPy would reduce both axes at once a hundred times more slowly.
    low, high = image.min(axis=0).min(axis=0), image.max(axis=0).max(axis=0)
    is_flat = low == high
    scale = np.where(is_flat, np.float32(1), (high - low) * np.float32(1 / 255)).astype(np.float32)
    low = np.where(is_flat, np.uint8(0), low)
    rows = image.reshape(height, width * channels) - np.tile(low, width)
    return np.asarray((rows / np.tile(scale, width)).astype(np.uint8).reshape(image.shape))


def equalize(image: Pixels) -> Pixels:
    """Equalize the histogram of each channel."""
    image = contiguous(image)
    channels = range(image.shape[2])
    counts = [cv2.calcHist([image], [channel], None, [256], [0, 256]).reshape(256) for channel in channels]
    tables = np.stack([_equalizing(count.astype(np.int64)) for count in counts], axis=1)
    return _look_up(image, tables[None])


def _mean_grey(levels: Pixels, is_whole: bool) -> float:
    """Return the mean grey of float32 levels, in whole levels if so; torchvision's, of 3 channels."""
    if levels.shape[2] != 3:
        return float(levels.mean(dtype=np.float64))
    greys = cv2.transform(levels, _GREY[:, :3])
    return float((np.floor(greys) if is_whole else greys).mean(dtype=np.float64))


def _in_range(levels: Pixels, dtype: DType) -> Pixels:
    """Return levels from 0 to white, in a dtype; fractions of integers are dropped, as by torchvision."""
    return np.clip(levels, 0, most_of(dtype), out=levels).astype(dtype, copy=False)


def _grey_plane(image: Pixels) -> Pixels:
    """Return the grey levels (height, width) of a contiguous image of 3 channels."""
    # OpenCV's weights have 10 bits for bytes and 24 for floats: hence floats.
    return np.asarray(cv2.transform(image.astype(np.float32), _GREY)).astype(np.uint8)


def _round_down(factor: float) -> float:
    """Return the offset with which OpenCV rounds `factor * a + (1 - factor) * b` down, not to the nearest.

    It is slightly above -0.5, with which whole numbers would come out a level lower: single precision has a
    spacing of 1.5e-5 below 256.
    """
    return 4e-5 * max(1.0, factor) - 0.5


def _equalizing(counts: NDArray[np.int64]) -> _Table:
    """Return the table that equalizes a channel with these counts of levels, by PIL's integer arithmetic."""
    step = (counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
    if step == 0:
        return np.arange(256, dtype=np.uint8)
    before = np.concatenate(([0], counts.cumsum()[:-1]))
    return np.asarray(np.minimum((before + step // 2) // step, 255).astype(np.uint8))


def _truncated(levels: NDArray[np.floating]) -> _Table:
    singles = levels.astype(np.float32)
    return np.minimum(np.maximum(singles, 0), 255).astype(np.uint8)


def _look_up(image: Pixels, table: _Table) -> Pixels:
    return with_last_axis(cv2.LUT(contiguous(image), table))
