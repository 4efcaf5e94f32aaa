"""Changes of colour and sharpness by a given amount: arrays in, new arrays out.

Every function takes uint8 pixels, (height, width, channels) with 1 or 3 channels, which may be read-only and
need not be contiguous, and returns as many. They compute what torchvision's functions of these names do for
uint8 tensors; tests/transforms/tolerances.py says how exactly.

What depends on a pixel's own level alone is a table of 256 entries; the rest are a few passes by OpenCV.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.transforms.layout import contiguous, with_channels
from fastload.transforms.transform import Pixels

_Table = NDArray[np.uint8]  # what each level becomes: (256,), or (1, 256, channels)

_LEVELS = np.arange(256, dtype=np.float32)

# torchvision's weights, which add up to 0.9999, so that a grey is a whole number of ten-thousandths. A third
# of one more keeps whole numbers, of which single precision takes less, from being rounded down to the next.
_GREY = np.array([[0.2989, 0.587, 0.114, 3e-5]], np.float32)

_GREYS_AT_A_TIME = 1 << 16  # whose floats stay in a core's own cache

# torchvision's kernel for what is not sharp: 5 in the middle and 1 around it.
_SOFT = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / np.float32(13)

_DEGREES = 360.0


def require_channels(pixels: Pixels) -> None:
    """Requires images of 1 or 3 channels.

    Raises:
        OptionError: They have others, such as an alpha channel.
    """
    if pixels.shape[-1] not in (1, 3):
        raise OptionError(
            f"an image must have 1 or 3 channels for its colours to change, got {pixels.shape[-1]}"
        )


def grey(image: Pixels) -> Pixels:
    """Levels of grey, in as many channels."""
    image = contiguous(image)
    return image if image.shape[2] == 1 else cv2.merge((grey_plane(image),) * 3)


def grey_plane(image: Pixels) -> Pixels:
    """Levels of grey of an image of 3 channels, contiguous: (height, width)."""
    # OpenCV has weights of 10 bits for bytes, and of 24 for floats; of which there are never many at a time.
    height, width = image.shape[:2]
    greys = np.empty((height, width), np.uint8)
    step = max(1, _GREYS_AT_A_TIME // width)
    for first in range(0, height, step):
        floats = image[first : first + step].astype(np.float32)
        greys[first : first + step] = cv2.transform(floats, _GREY).reshape(-1, width)
    return greys


def brightness(image: Pixels, factor: float) -> Pixels:
    """Multiplies by a factor of at least 0."""
    return _looked_up(image, _truncated(_LEVELS * np.float32(factor)))


def contrast(image: Pixels, factor: float) -> Pixels:
    """Moves pixels away from the mean grey, by a factor of at least 0."""
    image = contiguous(image)
    greys = image if image.shape[2] == 1 else grey_plane(image)
    mean = np.float32(cv2.mean(greys)[0])
    # As torch does it: a product in single precision, to which another is added with a single rounding.
    products = (_LEVELS * np.float32(factor)).astype(np.float64)
    return _looked_up(image, _truncated(products + float(mean) * float(np.float32(1 - factor))))


def saturation(image: Pixels, factor: float) -> Pixels:
    """Moves pixels away from their own grey, by a factor of at least 0."""
    if image.shape[2] == 1:
        return image
    image = contiguous(image)
    greys = grey(image)
    return cv2.addWeighted(image, factor, greys, 1 - factor, _down(factor), dst=greys)


def hue(image: Pixels, turn: float) -> Pixels:
    """Turns colours around the circle of hues; a turn is from -0.5 to 0.5 of it."""
    if image.shape[2] == 1:
        return image
    pixels = contiguous(image).astype(np.float32)
    cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV, dst=pixels)
    pixels[:, :, 0] += np.float32(turn % 1 * _DEGREES)
    cv2.cvtColor(pixels, cv2.COLOR_HSV2RGB, dst=pixels)
    # torchvision multiplies 0...1 by 255.999 and rounds down.
    return cv2.convertScaleAbs(pixels, alpha=255.999 / 255, beta=_down(1))


def sharpness(image: Pixels, factor: float) -> Pixels:
    """Moves pixels away from the mean around them, by a factor of at least 0; those at the edges stay."""
    height, width, channels = image.shape
    if height <= 2 or width <= 2:
        return image
    image = contiguous(image)
    soft = cv2.filter2D(image, -1, _SOFT)
    sharp = with_channels(cv2.addWeighted(image, factor, soft, 1 - factor, _down(factor), dst=soft), channels)
    for edge in (0, -1):
        sharp[edge] = image[edge]
        sharp[:, edge] = image[:, edge]
    return sharp


def posterize(image: Pixels, bits: int) -> Pixels:
    """Keeps the highest bits of each level."""
    return image if bits >= 8 else np.bitwise_and(contiguous(image), np.uint8(256 - (1 << (8 - bits))))


def solarize(image: Pixels, threshold: float) -> Pixels:
    """Inverts levels from a threshold on."""
    return _looked_up(image, np.where(threshold <= _LEVELS, 255 - _LEVELS, _LEVELS).astype(np.uint8))


def autocontrast(image: Pixels) -> Pixels:
    """Stretches each channel over all levels."""
    image = contiguous(image)
    height, width, channels = image.shape
    # Along columns first: NumPy would reduce both at once a hundred times slower.
    low, high = image.min(axis=0).min(axis=0), image.max(axis=0).max(axis=0)
    is_flat = low == high
    scale = np.where(is_flat, np.float32(1), (high - low) * np.float32(1 / 255)).astype(np.float32)
    low = np.where(is_flat, np.uint8(0), low)
    rows = image.reshape(height, width * channels) - np.tile(low, width)
    stretched: Pixels = (rows / np.tile(scale, width)).astype(np.uint8)
    return stretched.reshape(image.shape)


def equalize(image: Pixels) -> Pixels:
    """Spreads the levels of each channel so that each is about as frequent."""
    image = contiguous(image)
    channels = range(image.shape[2])
    counts = [cv2.calcHist([image], [channel], None, [256], [0, 256]).reshape(256) for channel in channels]
    tables = np.stack([_equalizing(count.astype(np.int64)) for count in counts], axis=1)
    return _looked_up(image, tables[None])


def _down(factor: float) -> float:
    """What makes OpenCV's rounding torchvision's rounding down, of products by a factor and by 1 minus it.

    Whole numbers, which such products often are, would come out a level less at -0.5: between two numbers
    below 256, single precision has 1.5e-5.
    """
    return 4e-5 * max(1.0, factor) - 0.5


def _equalizing(counts: NDArray[np.int64]) -> _Table:
    """The table that equalizes a channel, by PIL's integers; `counts` is how often each level occurs."""
    step = (counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
    if step == 0:
        return np.arange(256, dtype=np.uint8)
    before = np.concatenate(([0], counts.cumsum()[:-1]))
    table: _Table = np.minimum((before + step // 2) // step, 255).astype(np.uint8)
    return table


def _truncated(levels: NDArray[np.floating]) -> _Table:
    singles = levels.astype(np.float32)
    table: _Table = np.minimum(np.maximum(singles, 0), 255).astype(np.uint8)
    return table


def _looked_up(image: Pixels, table: _Table) -> Pixels:
    return with_channels(cv2.LUT(contiguous(image), table), image.shape[2])
