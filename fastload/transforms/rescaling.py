"""Arithmetic on pixel values: ToDtype, Normalize, LinearTransformation.

ToDtype and Normalize together are one multiplication and one addition for each channel. They are done once
for a batch, in the batch's memory or on the device it was copied to as bytes, a quarter of the size of
floats.
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
from fastload.transforms._pixels import to_pixels
from fastload.transforms.options import require
from fastload.transforms.transform import Pixels, Transform

_Dtype: TypeAlias = torch.dtype
_Numbers: TypeAlias = "tuple[torch.Tensor | None, torch.Tensor | None]"

_BYTES_AT_A_TIME = 1 << 20  # of results: what stays in a core's own cache between two passes


class _Rescaling(Transform):
    takes_any_dtype = True

    def __call__(self, image: Any) -> Any:
        """Rescale an image; see `Transform`. The result for a PIL image is a tensor."""
        return rescaled(image, [self]) if isinstance(image, torch.Tensor) else super().__call__(image)

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Rescale one image."""
        return Rescale.of([self], _torch_dtype(image)).of_array(image)


class ToDtype(_Rescaling):
    """Converts pixels to another dtype.

    Args:
        dtype: A floating-point dtype, such as `torch.float32`, or `torch.uint8`.
        scale: Whether 0…255 becomes 0…1 in a floating-point dtype.
    """

    #: Whether pixels that are not uint8 are left as they are.
    _only_uint8 = False

    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        is_valid = isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype == torch.uint8)
        require(is_valid, "dtype must be a floating-point type of torch's, or torch.uint8", dtype)
        self.dtype = dtype
        self.scale = scale


class Normalize(_Rescaling):
    """Subtracts a mean and divides by a standard deviation, for each channel.

    Args:
        mean: One number for each channel.
        std: One number for each channel, none of them 0.
        inplace: Accepted for compatibility with torchvision; the image given is never changed.

    Raises:
        OptionError: Also when used, if pixels are not floating-point numbers.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = [float(value) for value in mean]
        self.std = [float(value) for value in std]
        self.inplace = inplace
        if len(self.mean) != len(self.std) or not self.mean or not all(self.std):
            raise OptionError(
                f"mean and std must have a number for each channel, std none of 0, got {mean} and {std}"
            )


class LinearTransformation(Transform):
    """Subtracts a mean from all numbers of an image and multiplies them by a matrix, as in whitening.

    Args:
        transformation_matrix: (D, D), with D = channels × height × width.
        mean_vector: (D,), of the same dtype and device.

    Raises:
        OptionError: Also when used, if an image has another size; or if it is uint8 in a dataset's pipeline,
            where results have the image's dtype.
    """

    takes_any_dtype = True

    def __init__(self, transformation_matrix: torch.Tensor, mean_vector: torch.Tensor) -> None:
        matrix, mean = transformation_matrix, mean_vector
        if matrix.ndim != 2 or mean.ndim != 1 or {*matrix.shape} != {*mean.shape}:
            raise OptionError(
                "transformation_matrix must be (D, D) and mean_vector (D,), got "
                f"{tuple(matrix.shape)} and {tuple(mean.shape)}"
            )
        if matrix.dtype != mean.dtype or matrix.device != mean.device:
            raise OptionError(
                "transformation_matrix and mean_vector must have one dtype and one device, got "
                f"{matrix.dtype} on {matrix.device} and {mean.dtype} on {mean.device}"
            )
        self.transformation_matrix = matrix
        self.mean_vector = mean

    def __call__(self, image: Any) -> Any:
        """Transform an image; see `Transform`. A tensor is transformed on its device."""
        return self._transformed(image) if isinstance(image, torch.Tensor) else super().__call__(image)

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Raise OptionError unless pixels are floating-point numbers."""
        if not np.issubdtype(dtype, np.floating):
            raise OptionError(
                f"LinearTransformation must be given floating-point pixels, got {dtype}: "
                "put ToTensor before it"
            )

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Transform one image; the result has the image's dtype."""
        planes = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, 2, 0)))
        return np.moveaxis(self._transformed(planes).to(planes.dtype).numpy(), 0, 2)

    def _transformed(self, planes: torch.Tensor) -> torch.Tensor:
        count = planes.shape[-3:].numel()
        if planes.ndim < 3 or count != len(self.mean_vector):
            raise OptionError(
                f"an image must have {len(self.mean_vector)} numbers, as LinearTransformation's mean_vector, "
                f"got {tuple(planes.shape)}"
            )
        flat = planes.reshape(-1, count) - self.mean_vector
        return torch.mm(flat, self.transformation_matrix.to(flat.dtype)).reshape(planes.shape)


@dataclass(frozen=True, eq=False)
class Rescale:
    """One multiplication and one addition for each channel, or for all alike, with a result of `dtype`."""

    dtype: _Dtype
    factors: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def of(cls, steps: Sequence[Transform], dtype: _Dtype) -> Rescale:
        """Return ToDtype and Normalize steps in sequence as one, for pixels of a dtype."""
        return _rescale(tuple(_described(step) for step in steps), dtype)

    def of_array(self, image: Pixels) -> Pixels:
        """Rescale one image (height, width, channels) to an array of the same shape."""
        # NumPy has no bfloat16, so only torch's operations could follow such a step.
        if self.dtype == torch.bfloat16:
            raise OptionError(
                "ToDtype(torch.bfloat16) must be the last transform, or be followed by Normalize alone"
            )
        array: Pixels = self.of_image(image).permute(1, 2, 0).numpy()
        return array

    def of_image(self, image: Pixels) -> torch.Tensor:
        """Rescale one image (height, width, channels) to a tensor (channels, height, width)."""
        out = torch.empty((1, *image.shape), dtype=self.dtype).permute(0, 3, 1, 2)
        self.into(image[None], out)
        return out[0]

    def into(self, images: NDArray[Any], out: torch.Tensor) -> None:
        """Rescale a contiguous batch (images, height, width, channels) into a tensor of any memory format."""
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
        """Rescale a batch (images, channels, height, width) on its device, in its memory format."""
        self._require_channels(images.shape[1])
        if self._rounds:
            return replace(self, dtype=torch.float32).on(images).to(self.dtype)
        out = images.to(self.dtype, copy=True)
        _scale(out, self._numbers(out, 2, 1))
        return out

    @property
    def _rounds(self) -> bool:
        """True if there are fractions in between that an integer result cannot hold."""
        is_neutral = bool((self.factors == 1).all()) and not bool(self.offsets.any())
        return not self.dtype.is_floating_point and not is_neutral

    def _numbers(self, out: torch.Tensor, trailing: int, repeats: int) -> _Numbers:
        """Return factors and offsets, shaped for broadcasting; None where they change nothing."""
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


def rescaled(image: Any, steps: Sequence[Transform]) -> torch.Tensor:
    """Return one image of any kind, rescaled by ToDtype and Normalize steps, as a tensor."""
    if isinstance(image, torch.Tensor) and image.ndim >= 3:
        batch = image.reshape(-1, *image.shape[-3:])
        return Rescale.of(steps, image.dtype).on(batch).reshape(image.shape)
    pixels = to_pixels(image)
    return Rescale.of(steps, _torch_dtype(pixels)).of_image(pixels)


def _scale(out: torch.Tensor, numbers: _Numbers) -> None:
    factors, offsets = numbers
    if factors is not None and offsets is not None:
        torch.addcmul(offsets, out, factors, out=out)
    elif factors is not None:
        out.mul_(factors)
    elif offsets is not None:
        out.add_(offsets)


def _torch_dtype(pixels: Pixels) -> _Dtype:
    # From a new array, because torch accepts none that is read-only or mirrored.
    return torch.from_numpy(np.empty(0, pixels.dtype)).dtype


class _Conversion(NamedTuple):
    dtype: _Dtype
    scale: bool
    only_uint8: bool


class _Normalization(NamedTuple):
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _described(step: Transform) -> _Conversion | _Normalization:
    """Return a step as a hashable value."""
    if isinstance(step, ToDtype):
        return _Conversion(step.dtype, step.scale, step._only_uint8)
    assert isinstance(step, Normalize)
    return _Normalization(tuple(step.mean), tuple(step.std))


@functools.lru_cache(maxsize=64)  # because making the tensors takes as long as rescaling a small image
def _rescale(steps: tuple[_Conversion | _Normalization, ...], dtype: _Dtype) -> Rescale:
    result = dtype
    factors, offsets = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    for step in steps:
        if isinstance(step, _Conversion):
            if step.only_uint8 and result != torch.uint8:
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
