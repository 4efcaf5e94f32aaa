"""From uint8 to the numbers that a model takes: ToDtype, Normalize, and what both are together.

Side by side they are one multiplication and one addition for each channel, done once for a batch, where the
batch is to lie, or on the device that it was copied to as bytes: a quarter of the bytes to copy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.transforms.transform import Parameters, Pixels, Transform, to_pixels

_Dtype: TypeAlias = torch.dtype
_Numbers: TypeAlias = "tuple[torch.Tensor | None, torch.Tensor | None]"

_BYTES_AT_A_TIME = 1 << 20  # of results: what stays in a core's own cache between two passes


class ToDtype(Transform):
    """Turns pixels into another type.

    Args:
        dtype: The type, such as `torch.float32`.
        scale: Whether 0…255 becomes 0…1 in a floating-point type.

    Raises:
        OptionError: It is no floating-point type, nor uint8.
    """

    takes_any_dtype = True

    #: Whether pixels that are no bytes stay as they are.
    _is_of_bytes = False

    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point or dtype == torch.uint8):
            raise OptionError(
                f"dtype must be a floating-point type of torch's, or torch.uint8, got {dtype!r}"
            )
        self.dtype = dtype
        self.scale = scale

    def __call__(self, image: Any) -> Any:
        """See `Transform`; of a PIL image, a tensor is made."""
        return rescaled(image, [self]) if isinstance(image, torch.Tensor) else super().__call__(image)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Converts."""
        return Rescale.of([self], _torch_dtype(image)).apply(image, parameters)


class Normalize(Transform):
    """Subtracts a mean and divides by a standard deviation, channel by channel.

    Args:
        mean: For each channel.
        std: For each channel.
        inplace: Taken for torchvision's sake; a result is never the image given.

    Raises:
        OptionError: There is no deviation, or pixels are not floating-point numbers.
    """

    takes_any_dtype = True

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = [float(value) for value in mean]
        self.std = [float(value) for value in std]
        self.inplace = inplace
        if len(self.mean) != len(self.std) or not self.mean or not all(self.std):
            raise OptionError(
                f"mean and std must have a number for each channel, std none of 0, got {mean} and {std}"
            )

    def __call__(self, image: Any) -> Any:
        """See `Transform`; of a PIL image, a tensor is made."""
        return rescaled(image, [self]) if isinstance(image, torch.Tensor) else super().__call__(image)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Normalises."""
        return Rescale.of([self], _torch_dtype(image)).apply(image, parameters)


def _torch_dtype(pixels: Pixels) -> _Dtype:
    # Of an array of its own, because torch takes none that is read-only or mirrored.
    return torch.from_numpy(np.empty(0, pixels.dtype)).dtype


@dataclass(frozen=True, eq=False)
class Rescale(Transform):
    """Multiplies and adds, channel by channel.

    Attributes:
        dtype: Of the result.
        factors: One for each channel, or one for all.
        offsets: As many.
    """

    dtype: _Dtype
    factors: torch.Tensor
    offsets: torch.Tensor

    takes_any_dtype = True

    @classmethod
    def of(cls, steps: Sequence[Transform], dtype: _Dtype) -> Rescale:
        """What ToDtype and Normalize do, one after the other.

        Args:
            steps: Such transforms.
            dtype: Of the pixels that they are given.

        Raises:
            OptionError: Normalize is given whole numbers.
        """
        return _rescale(tuple(_described(step) for step in steps), dtype)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Rescales one image."""
        rescaled: Pixels = self.apply_batch(image[None], np.empty((1, 0)))[0]
        return rescaled

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Rescales a batch."""
        # NumPy has no bfloat16: what comes after such a step would have to be torch's.
        if self.dtype == torch.bfloat16:
            raise OptionError(
                "ToDtype(torch.bfloat16) must be the last transform, or be followed by Normalize alone"
            )
        array: NDArray[Any] = self._rescaled(images).permute(0, 2, 3, 1).numpy()
        return array

    def of_image(self, image: Pixels) -> torch.Tensor:
        """Rescales one image, (height, width, channels), to a tensor (channels, height, width)."""
        return self._rescaled(image[None])[0]

    def _rescaled(self, images: Pixels) -> torch.Tensor:
        out = torch.empty(images.shape, dtype=self.dtype).permute(0, 3, 1, 2)
        self.into(images, out)
        return out

    def into(self, images: NDArray[Any], out: torch.Tensor) -> None:
        """Rescales a batch into a given tensor.

        Args:
            images: (images, height, width, channels), contiguous.
            out: (images, channels, height, width), of any memory format.

        Raises:
            OptionError: There are more, or fewer, factors than channels.
        """
        self._require_channels(images.shape[3])
        if self._rounds:
            scratch = torch.empty(images.shape, dtype=torch.float32).permute(0, 3, 1, 2)
            replace(self, dtype=torch.float32).into(images, scratch)
            out.copy_(scratch)
            return
        batch = torch.from_numpy(np.require(images, requirements=("C", "W")))
        height, width, channels = batch.shape[1:]
        last = out.permute(0, 2, 3, 1)
        if last.is_contiguous():
            # Factors for a whole row, because a loop over three channels would be all overhead.
            batch, out = batch.view(-1, width * channels), last.view(-1, width * channels)
            rows, numbers = height, self._numbers(out, 0, width)
        else:
            batch = batch.permute(0, 3, 1, 2)
            rows, numbers = 1, self._numbers(out, 2, 1)
        step = rows * max(1, _BYTES_AT_A_TIME // max(1, height * width * channels * out.itemsize))
        for first in range(0, len(batch), step):
            part = out[first : first + step]
            part.copy_(batch[first : first + step])
            _scale(part, numbers)

    def on(self, images: torch.Tensor) -> torch.Tensor:
        """Rescales a batch where it lies.

        Args:
            images: (images, channels, height, width), on any device.

        Returns:
            Of the same shape, memory format and device.
        """
        self._require_channels(images.shape[1])
        if self._rounds:
            return replace(self, dtype=torch.float32).on(images).to(self.dtype)
        out = images.to(self.dtype, copy=True)
        _scale(out, self._numbers(out, 2, 1))
        return out

    @property
    def _rounds(self) -> bool:
        """Whether fractions come up on the way to whole numbers."""
        is_neutral = bool((self.factors == 1).all()) and not bool(self.offsets.any())
        return not self.dtype.is_floating_point and not is_neutral

    def _numbers(self, out: torch.Tensor, trailing: int, repeats: int) -> _Numbers:
        """Factors and offsets, shaped to multiply and to be added; None where they change nothing."""
        numbers: list[torch.Tensor | None] = []
        for values, neutral in ((self.factors, 1), (self.offsets, 0)):
            if bool((values == neutral).all()):
                numbers.append(None)
                continue
            repeated = values.repeat(repeats) if len(values) > 1 else values
            numbers.append(repeated.to(out.device, out.dtype).reshape(-1, *[1] * trailing))
        return numbers[0], numbers[1]

    def _require_channels(self, channels: int) -> None:
        if len(self.factors) not in (1, channels):
            raise OptionError(
                f"Normalize must have a mean and std for each of {channels} channels, got {len(self.factors)}"
            )


def _scale(out: torch.Tensor, numbers: _Numbers) -> None:
    factors, offsets = numbers
    if factors is not None and offsets is not None:
        torch.addcmul(offsets, out, factors, out=out)
    elif factors is not None:
        out.mul_(factors)
    elif offsets is not None:
        out.add_(offsets)


def rescaled(image: Any, steps: Sequence[Transform]) -> torch.Tensor:
    """What ToDtype and Normalize make of one image, a tensor.

    Args:
        image: A tensor (channels, height, width) of any type, or another image, as transforms take them.
        steps: Such transforms.
    """
    if isinstance(image, torch.Tensor) and image.ndim >= 3:
        batch = image.reshape(-1, *image.shape[-3:])
        return Rescale.of(steps, image.dtype).on(batch).reshape(image.shape)
    pixels = to_pixels(image)
    return Rescale.of(steps, _torch_dtype(pixels)).of_image(pixels)


class _Conversion(NamedTuple):
    """What a ToDtype does."""

    dtype: _Dtype
    scale: bool
    is_of_bytes: bool = False


class _Normalization(NamedTuple):
    """What a Normalize does."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def _described(step: Transform) -> _Conversion | _Normalization:
    if isinstance(step, ToDtype):
        return _Conversion(step.dtype, step.scale, step._is_of_bytes)
    assert isinstance(step, Normalize)
    return _Normalization(tuple(step.mean), tuple(step.std))


@functools.lru_cache(maxsize=64)  # because making the tensors takes as long as rescaling a small image
def _rescale(steps: tuple[_Conversion | _Normalization, ...], dtype: _Dtype) -> Rescale:
    result = dtype
    factors, offsets = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for step in steps:
        if isinstance(step, _Conversion):
            if step.is_of_bytes and result != torch.uint8:
                continue
            if step.scale and step.dtype.is_floating_point != result.is_floating_point:
                if not step.dtype.is_floating_point:
                    raise OptionError("ToDtype(torch.uint8, scale=True) must be given uint8 pixels")
                factors = factors / 255
            result = step.dtype
            continue
        if not result.is_floating_point:
            raise OptionError(
                f"Normalize must be given floating-point pixels, got {result}: "
                "put ToDtype(torch.float32, scale=True) before it"
            )
        mean, std = torch.tensor([step.mean, step.std], dtype=torch.float64)
        factors, offsets = factors / std, (offsets - mean) / std
    channels = max(len(factors), len(offsets))
    return Rescale(result, factors.expand(channels), offsets.expand(channels))
