"""Degradations: GaussianBlur, GaussianNoise, JPEG, RandomErasing."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels, with_last_axis
from fastload.images.decode import decode, encode
from fastload.images.encoding_names import DTYPES
from fastload.images.opencv import cv2
from fastload.images.pixel_types import most_of
from fastload.transforms import options
from fastload.transforms.colour.adjusting import require_channels
from fastload.transforms.draws import Draws, integers, random_sides, seeds
from fastload.transforms.options import Amount, SizeOption
from fastload.transforms.pixels import contiguous
from fastload.transforms.transform import ColourTransform, Parameters, Row, Sizes

_ATTEMPTS = 10  # to find a rectangle that fits, as in torchvision

# At this many standard deviations, weights are a millionth of the centre's: hardly any level depends on
# pixels beyond.
_REACH = math.sqrt(2 * math.log(1e6))


class GaussianBlur(ColourTransform):
    """Blurs images by a Gaussian of random width, with mirrored edges; parameters as in torchvision."""

    width = 1
    takes_any_dtype = True

    def __init__(self, kernel_size: SizeOption, sigma: Amount = (0.1, 2.0)) -> None:
        self.kernel_size = options.to_size(kernel_size, "kernel_size")
        is_odd = all(side % 2 for side in self.kernel_size)
        options.require(is_odd, "kernel_size must be an odd number of pixels", kernel_size)
        rule = "sigma must be a number above 0, or a range (low, high) of such"
        self.sigma = options.to_two(sigma, rule, options.ABOVE_0, is_ordered=True)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        return draws.between(*self.sigma)[:, None]

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        sigma, reach = parameters[0], 2 * math.ceil(parameters[0] * _REACH) + 1
        sides = (min(side, reach) for side in self.kernel_size)
        along_x, along_y = (cv2.getGaussianKernel(side, sigma, cv2.CV_32F) for side in sides)
        pixels = contiguous(image.astype(np.float32) if image.dtype == np.float16 else image)
        # With integers as results OpenCV would round the weights to 8 bits.
        blurred = with_last_axis(cv2.sepFilter2D(pixels, cv2.CV_32F, along_x, along_y))
        if image.dtype == np.uint8:
            return with_last_axis(cv2.convertScaleAbs(blurred))
        return (blurred if image.dtype.kind == "f" else np.rint(blurred, out=blurred)).astype(image.dtype)


class GaussianNoise(ColourTransform):
    """Adds normally distributed noise; parameters as in torchvision.

    `mean` and `sigma` are relative to white, also for integers, which wrap around with `clip=False`.
    """

    width = 1
    takes_any_dtype = True

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        self.mean = options.to_number(mean, "mean", -math.inf)
        self.sigma = options.to_number(sigma, "sigma")
        self.clip = clip

    def require_dtype(self, dtype: DType) -> None:
        if dtype.name not in DTYPES and dtype.kind != "f":
            raise OptionError(
                f"GaussianNoise takes pixels of {', '.join(DTYPES)}, got {dtype}: convert them before it"
            )

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw seeds of the noise."""
        return seeds(draws.uniform(1))

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        self.require_dtype(image.dtype)
        noise = _normal_noise(int(parameters[0]), image.shape, np.dtype(np.float32))
        if image.dtype.kind == "f":
            noisy: Pixels = image + (self.mean + noise * np.float32(self.sigma)).astype(image.dtype)
            return noisy.clip(0, 1) if self.clip else noisy
        most, wide = most_of(image.dtype), np.dtype(np.int16 if image.dtype == np.uint8 else np.int32)
        levels: Pixels = (self.mean * most + noise * np.float32(self.sigma * most)).astype(wide)
        levels = levels + image
        return (levels.clip(0, int(most)) if self.clip else levels).astype(image.dtype)


class JPEG(ColourTransform):
    """Compresses images as JPEG and decompresses them; parameters as in torchvision."""

    width = 1

    def __init__(self, quality: int | Sequence[int]) -> None:
        rule = "quality must be a whole number from 1 to 100, or a range (low, high)"
        bounds = options.to_two(quality, rule, 1, 100, kind=options.is_whole, is_ordered=True)
        self.quality: tuple[int, int] = bounds

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        low, high = self.quality
        return (low + integers(draws.uniform(1), high - low + 1)).astype(np.float64)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        require_channels(image)
        pixels = contiguous(image)
        plane = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
        data = encode(plane, ".jpg", (cv2.IMWRITE_JPEG_QUALITY, int(parameters[0])))
        return decode(data)[:, :, : image.shape[2]]


class RandomErasing(ColourTransform):
    """Erases a rectangle of random position, area and aspect ratio; parameters as in torchvision.

    The colour may also be `random`: noise of mean 0 and deviation 1. `inplace` is accepted, but an image is
    never changed.
    """

    width = 5
    takes_any_dtype = True

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Amount | str = 0.0,
        inplace: bool = False,
    ) -> None:
        self.p = options.to_probability(p)
        self.scale = options.to_range(scale, "scale", 0, 1)
        self.ratio = options.to_range(ratio, "ratio")
        self.value = value
        self.inplace = inplace
        rule = "value must be a number, one for each channel, or 'random'"
        numbers = () if value == "random" else options.to_numbers(value, rule, options.SEVERAL)
        self._colour = np.array(numbers, np.float32)

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draw rectangles (top, left, height, width) and seeds of noise; height 0 for unchanged images."""
        numbers = draws.uniform(2 * _ATTEMPTS + 4)
        sides, fits = random_sides(numbers[:, :-4], sizes, self.scale, self.ratio, 0, sizes - 1)
        rows = np.empty((len(sizes), self.width))
        rows[:, 2:4] = sides
        rows[:, :2] = integers(numbers[:, -4:-2], np.maximum(sizes - sides.astype(np.int64) + 1, 1))
        rows[:, 4] = seeds(numbers[:, -2])
        rows[~fits | (numbers[:, -1] >= self.p), :4] = 0
        return rows

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        if not parameters[2] or not parameters[3]:
            return image
        erased = image.copy() if image.flags.c_contiguous else contiguous(image)
        top, left, height, width, seed = map(int, parameters)
        channels = image.shape[2]
        if self.value == "random":
            colour = _normal_noise(seed, (height, width, channels), image.dtype)
        else:
            colour = _converted(self._colour_of(channels), image.dtype)
        erased[top : top + height, left : left + width] = colour
        return erased

    @property
    def runs_on_device(self) -> bool:
        """True unless the colour is noise, which the host draws."""
        return super().runs_on_device and self.value != "random"

    def on_device(self, images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        device = images.device
        colour = torch.from_numpy(self._colour_of(images.shape[1])).to(device)[:, None, None]
        colour = colour if images.dtype.is_floating_point else colour.to(torch.int64)
        corners = torch.from_numpy(parameters[:, :4].astype(np.int64)).to(device)
        top, left, height, width = corners.T[..., None]
        rows, columns = (torch.arange(side, device=device) for side in images.shape[2:])
        is_in_rows = (rows >= top) & (rows < top + height)
        is_in_columns = (columns >= left) & (columns < left + width)
        is_erased = (is_in_rows[:, :, None] & is_in_columns[:, None])[:, None]
        return torch.where(is_erased, colour.to(images.dtype), images)

    def _colour_of(self, channels: int) -> NDArray[np.float32]:
        """Return the colour, unless it is random: one number, or one for each channel."""
        rule = f"value must be one number, or one for each of {channels} channels"
        options.require(len(self._colour) in (1, channels), rule, self.value)
        return self._colour


def _normal_noise(seed: int, shape: tuple[int, ...], dtype: DType) -> Pixels:
    """Return normally distributed numbers of mean 0 and deviation 1, converted to a dtype."""
    count = math.prod(shape)
    bits = np.random.Philox(key=seed).random_raw(-(-count // 4)).astype("<u8", copy=False).view("<u2")
    return np.take(_quantiles(dtype), bits[:count]).reshape(shape)


def _converted(numbers: NDArray[np.float32], dtype: DType) -> Pixels:
    """Convert numbers to a dtype; integers that do not fit wrap around, as in torch's conversions."""
    if not np.issubdtype(dtype, np.floating):
        return numbers.astype(np.int64).astype(dtype)
    return numbers.astype(dtype)


@functools.lru_cache(maxsize=8)
def _quantiles(dtype: DType) -> Pixels:
    """Return the normal distribution as 65,536 equally likely numbers, the largest of them 4.2.

    Looking them up takes a tenth of the time that NumPy takes to draw as many.
    """
    shares = (torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16)
    return _converted(torch.special.ndtri(shares).float().numpy(), dtype)
