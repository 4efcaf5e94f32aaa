"""Arithmetic on pixel values: ToDtype, Normalize.

ToDtype and Normalize together are one multiplication and one addition for each channel. They are done once
for a batch, in the batch's memory or on the device it was copied to as bytes, a quarter of the size of
floats.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.transforms.options import IMAGE_TYPES, of_type, require
from fastload.transforms.pixels import Image, as_tv_image, to_pixels
from fastload.transforms.samples import TYPES, SampleParts
from fastload.transforms.transform import Annotations, ColourTransform, Parameters, Row, Transform

_Coefficients = tuple[torch.Tensor | None, torch.Tensor | None]  # factors and offsets; None changes nothing

_SINGLE_BYTES = 4

_INTEGERS = (torch.uint8, torch.uint16, torch.int16)

# torchvision's: 1.0 becomes the highest level, and each level has nearly the same share of 0…1.
_BELOW_ONE_LEVEL = 1e-3

_BYTES_AT_A_TIME = 1 << 20  # of results: these stay in a core's own cache between two passes


class Rescale(NamedTuple):
    """One multiplication and one addition for each channel, or for all alike, with a result of `dtype`."""

    dtype: torch.dtype
    factors: tuple[float, ...] = (1.0,)
    offsets: tuple[float, ...] = (0.0,)

    @classmethod
    def of(cls, steps: Sequence[Transform], dtype: torch.dtype) -> Rescale:
        """Combine a sequence of ToDtype and Normalize steps, for pixels of a dtype."""
        rescale = cls(dtype)
        for step in steps:
            assert isinstance(step, Rescaling)
            rescale = step.after(rescale)
        return rescale

    def scaled(self, dtype: torch.dtype) -> Rescale:
        """Return the rescaling followed by torchvision's conversion to another dtype, with `scale`."""
        given, wanted = self.dtype.is_floating_point, dtype.is_floating_point
        if given and wanted:
            return self._replace(dtype=dtype)
        most, divisor = 1.0, 1.0
        if not given:
            divisor = torch.iinfo(self.dtype).max + float(not wanted)
        if not wanted:
            most = torch.iinfo(dtype).max + 1 - (_BELOW_ONE_LEVEL if given else 0)
        factors, offsets = (
            tuple(each * most / divisor for each in numbers) for numbers in (self.factors, self.offsets)
        )
        return Rescale(dtype, factors, offsets)

    def of_image(self, image: Pixels) -> torch.Tensor:
        """Rescale one image (height, width, channels) to a tensor (channels, height, width)."""
        out = torch.empty((1, *image.shape), dtype=self.dtype).permute(0, 3, 1, 2)
        self.into(image[None], out)
        return out[0]

    def into(self, images: Pixels, out: torch.Tensor) -> None:
        """Rescale a contiguous batch (images, height, width, channels) into a tensor of any memory format."""
        self._require_channels(images.shape[3])
        images = np.require(images, requirements=("C", "W"))
        source, last = torch.from_numpy(images), out.permute(0, 2, 3, 1)
        if not self.dtype.is_floating_point or self._is_too_coarse_for(source.dtype):
            out.copy_(self.on(source.permute(0, 3, 1, 2)))
        elif last.is_contiguous():
            self._into_rows(source, last)
        elif images.dtype == np.uint8 and out.dtype == torch.float32:
            self._into_planes(images, out)
        else:
            out.copy_(source.permute(0, 3, 1, 2))
            _scale(out, _coefficients(self, out.device, 2, 1))

    def _into_rows(self, source: torch.Tensor, out: torch.Tensor) -> None:
        """Rescale into a contiguous tensor of the same shape (images, height, width, channels)."""
        height, width, channels = source.shape[1:]
        source, out = source.view(-1, width * channels), out.view(-1, width * channels)
        # Factors for an entire row, because a loop over three channels would be all overhead.
        coefficients = _coefficients(self, out.device, 0, width)
        step = height * _images_at_a_time(height * width * channels * out.itemsize)
        for first in range(0, len(source), step):
            rows = out[first : first + step]
            rows.copy_(source[first : first + step])
            _scale(rows, coefficients)

    def _into_planes(self, images: Pixels, out: torch.Tensor) -> None:
        """Rescale bytes into planes (images, channels, height, width) of float32, to the bit as `addcmul`.

        OpenCV separates the channels first: of thumbnails, in all half of the time. In place, because `add`
        would convert bytes in memory of its own, which takes a fifth longer.
        """
        count, height, width, channels = images.shape
        tall = images.reshape(count * height, width, channels)
        step = _images_at_a_time(height * width * out.itemsize)
        pairs = _channel_coefficients(self, channels)
        for first in range(0, count, step):
            planes = cv2.split(tall[first * height : (first + step) * height])
            for channel, (plane, (factor, offset)) in enumerate(zip(planes, pairs, strict=True)):
                pixels = out[first : first + step, channel]
                pixels.copy_(torch.from_numpy(plane.reshape(-1, height, width)))
                torch.add(offset, pixels, alpha=factor, out=pixels)

    def on(self, images: torch.Tensor) -> torch.Tensor:
        """Rescale a batch (images, channels, height, width) on its device, in its memory format."""
        self._require_channels(images.shape[1])
        if self.rounds or self._is_too_coarse_for(images.dtype):
            return self._replace(dtype=torch.float32).on(images).to(self.dtype)
        out = images.to(self.dtype, copy=True)
        return _scale(out, _coefficients(self, out.device, 2, 1))

    def _is_too_coarse_for(self, given: torch.dtype) -> bool:
        """Return True if numbers of a dtype must be rescaled in single precision: half cannot hold them."""
        return self.dtype.itemsize < _SINGLE_BYTES and given in (torch.uint16, torch.int16)

    @property
    def rounds(self) -> bool:
        """True if intermediate results are fractions, which an integer result must round."""
        is_neutral = set(self.factors) == {1.0} and not any(self.offsets)
        return not self.dtype.is_floating_point and not is_neutral

    def _require_channels(self, channels: int) -> None:
        if (count := len(self.factors)) not in (1, channels):
            rule = f"Normalize must have a mean and std for each of {channels} channels"
            raise OptionError(f"{rule}, got {count}")


class Rescaling(ColourTransform):
    """Base class of ToDtype and Normalize."""

    takes_any_dtype = True

    def of_image(self, image: Image) -> Image:
        """Rescale an image; see `Transform`. The result for a PIL image is a tensor."""
        return rescaled(image, [self]) if isinstance(image, torch.Tensor) else super().of_image(image)

    def apply(self, image: Pixels, parameters: Row) -> Pixels:
        rescale = Rescale.of([self], _torch_dtype(image))
        # NumPy has no bfloat16, so only torch's operations could follow such a step.
        rule = "ToDtype must be the last transform, or be followed by Normalize alone, to give this dtype"
        require(rescale.dtype != torch.bfloat16, rule, rescale.dtype)
        return rescale.of_image(image).permute(1, 2, 0).numpy()

    def on_device(self, images: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        return Rescale.of([self], images.dtype).on(images)

    def after(self, earlier: Rescale) -> Rescale:
        """Return an earlier rescaling combined with this one."""
        raise NotImplementedError


class ToDtype(Rescaling):
    """Converts pixels to `dtype`, a floating-point one, `torch.uint8`, `torch.uint16` or `torch.int16`.

    With `scale`, 0 to the highest level of an integer dtype become 0…1 in a floating-point dtype, and the
    other way round; between integers, levels are multiplied or divided by a power of two, all as in
    torchvision. `dtype` may be a dict of one for each type, as there:
    `{tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64}`.
    """

    #: True if pixels of other dtypes than uint8 are left unchanged.
    _only_uint8 = False

    def __init__(self, dtype: torch.dtype | Mapping[Any, torch.dtype | None], scale: bool = False) -> None:
        self.dtype = dtype
        self.scale = scale
        found = self._image_dtype
        is_valid = isinstance(found, torch.dtype) and (found.is_floating_point or found in _INTEGERS)
        is_valid |= found is None and self.of_objects
        rule = (
            "dtype must be one of torch's floating-point dtypes, or torch.uint8, torch.uint16 or torch.int16"
        )
        require(is_valid, rule, dtype)

    @property
    def _image_dtype(self) -> torch.dtype | None:
        return of_type(self.dtype, IMAGE_TYPES, "dtype") if isinstance(self.dtype, Mapping) else self.dtype

    @property
    def of_objects(self) -> bool:
        """True if annotations are converted, too."""
        return isinstance(self.dtype, Mapping)

    def of_sample(self, structure: object) -> object:
        """Return a sample with its image converted, and its annotations if `dtype` is a dict."""
        sample = SampleParts(structure)
        images = [self.of_image(image) for image in sample.images]
        return sample.converted(images, self._converted) if self.of_objects else sample.rebuilt(images)

    def apply_to(self, annotations: Annotations, parameters: Row) -> Annotations:
        if not self.of_objects:
            return annotations
        values: dict[str, Any] = {}
        for name, kind in TYPES.items():
            if (value := getattr(annotations, name)) is not None:
                values[name] = torch.as_tensor(self._converted(torch.from_numpy(value), kind)).numpy()
        rule = "dtype must be one of floating-point numbers for coordinates in a dataset's transform"
        require(values["boxes"].dtype.kind == "f", rule, self.dtype)
        return replace(annotations, **values)

    def _converted(self, value: object, kind: str) -> object:
        """Return a value converted to the dtype for its type; unchanged if that is none of torchvision's."""
        if not kind or not isinstance(self.dtype, Mapping):
            return value
        is_said = "others" in self.dtype or kind in {each.__name__ for each in self.dtype}
        require(is_said, f'dtype must have an entry for {kind}, or "others"', self.dtype)
        dtype = of_type(self.dtype, (kind,), "dtype")
        return value if dtype is None else _exactly(torch.as_tensor(value), dtype)

    def after(self, earlier: Rescale) -> Rescale:
        dtype = self._image_dtype
        if dtype is None or (self._only_uint8 and earlier.dtype != torch.uint8):
            return earlier
        if earlier.rounds:
            raise OptionError(f"ToDtype({earlier.dtype}) after Normalize must be the last transform")
        if not self.scale or dtype == earlier.dtype:
            return Rescale(dtype, earlier.factors, earlier.offsets)
        return earlier.scaled(dtype)


class Normalize(Rescaling):
    """Subtracts a mean and divides by a standard deviation, for each channel; parameters as in torchvision.

    Using it raises `OptionError` if pixels are not floating-point numbers. `inplace` is accepted, but an
    image is never changed.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.inplace = inplace
        rule = "mean and std must be lists with a number for each channel, std none of 0"
        try:
            self.mean, self.std = ([float(value) for value in values] for values in (mean, std))
        except (TypeError, ValueError):
            self.mean, self.std = [], []
        if len(self.mean) != len(self.std) or not self.mean or not all(self.std):
            raise OptionError(f"{rule}, got {mean!r} and {std!r}")

    def after(self, earlier: Rescale) -> Rescale:
        if not earlier.dtype.is_floating_point:
            raise OptionError(
                f"Normalize must be given floating-point pixels, got {earlier.dtype}: "
                "put ToDtype(torch.float32, scale=True) before it"
            )
        mean, std = np.array([self.mean, self.std])
        factors, offsets = np.array(earlier.factors) / std, (np.array(earlier.offsets) - mean) / std
        return Rescale(earlier.dtype, tuple(factors.tolist()), tuple(offsets.tolist()))


def rescaled(image: object, steps: Sequence[Transform]) -> torch.Tensor:
    """Return one image of any type, rescaled by ToDtype and Normalize steps, as a tensor."""
    if isinstance(image, torch.Tensor) and image.ndim >= 3:
        batch = image.reshape(-1, *image.shape[-3:])
        return as_tv_image(Rescale.of(steps, image.dtype).on(batch).reshape(image.shape), image)
    pixels = to_pixels(image)
    return Rescale.of(steps, _torch_dtype(pixels)).of_image(pixels)


def _images_at_a_time(image_bytes: int) -> int:
    return max(1, _BYTES_AT_A_TIME // image_bytes)


@functools.lru_cache(16)
def _channel_coefficients(rescale: Rescale, channels: int) -> list[tuple[float, torch.Tensor]]:
    """Return factor and offset of each channel, in the dtype of the result."""
    pair = rescale.factors, rescale.offsets
    factors, offsets = (torch.tensor(each, dtype=rescale.dtype).expand(channels) for each in pair)
    return list(zip(factors.tolist(), offsets, strict=True))


def _exactly(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return numbers converted to a dtype; raise OptionError if whole numbers there cannot be these."""
    converted = values.to(dtype)
    if not dtype.is_floating_point and not torch.equal(converted.to(values.dtype), values):
        raise OptionError(
            f"ToDtype must be given numbers that {dtype} can hold, got {values.dtype} from {values.min()} to "
            f"{values.max()}"
        )
    return converted


@functools.lru_cache(16)
def _coefficients(rescale: Rescale, device: torch.device, trailing: int, repeats: int) -> _Coefficients:
    """Return factors and offsets, shaped for broadcasting; None where they change nothing."""
    coefficients: list[torch.Tensor | None] = []
    for values, neutral in ((rescale.factors, 1.0), (rescale.offsets, 0.0)):
        repeated = torch.tensor(values * repeats if len(values) > 1 else values, dtype=torch.float64)
        shaped = repeated.to(device, rescale.dtype).reshape(-1, *[1] * trailing)
        coefficients.append(None if set(values) == {neutral} else shaped)
    return coefficients[0], coefficients[1]


def _scale(out: torch.Tensor, coefficients: _Coefficients) -> torch.Tensor:
    """Return a tensor multiplied and added to: itself, unless it requires a gradient."""
    factors, offsets = coefficients
    if factors is not None and offsets is not None:
        return torch.addcmul(offsets, out, factors, out=None if out.requires_grad else out)
    out = out if factors is None else out.mul_(factors)
    return out if offsets is None else out.add_(offsets)


def _torch_dtype(pixels: Pixels) -> torch.dtype:
    # From a new array, because torch rejects read-only and mirrored ones.
    return torch.from_numpy(np.empty(0, pixels.dtype)).dtype
