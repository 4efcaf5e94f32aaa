"""Resampling of images, and limits on their size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array

if TYPE_CHECKING:
    import torch

_MAX_SIDE = 65_500  # the largest that libjpeg writes

_TRANSPOSED_CHANNELS = 4  # the most that OpenCV transposes for every type

# Dtypes of which PyTorch's kernels write channels beside each other, or that are rare.
_INTERLEAVED = (np.dtype(np.uint8), np.dtype(np.float64))

_FILTERS = ("bilinear", "bicubic", "area", "nearest", "nearest-exact")


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A limit on image size; exactly one of the three is set, otherwise OptionError is raised.

    Larger images shrink, keeping their aspect ratio, until their longer side is `max_side` or their shorter
    side is `shorter_side` (rounded as by torchvision's `Resize`). `size` is the (height, width) of every
    image, whatever its aspect ratio.
    """

    max_side: int | None = None
    shorter_side: int | None = None
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if sum(limit is not None for limit in (self.max_side, self.shorter_side, self.size)) != 1:
            raise OptionError(f"a size limit must be one of max_side, shorter_side and size, got {self}")
        if self.size is not None and not (isinstance(self.size, tuple) and len(self.size) == 2):
            raise OptionError(f"a size must be (height, width), got {self.size!r}")
        rule = f"a size limit must be a whole number of pixels from 1 to {_MAX_SIDE}"
        for side in self.size or (self.max_side, self.shorter_side):
            if side is not None and not (isinstance(side, int) and 1 <= side <= _MAX_SIDE):
                raise OptionError(f"{rule}, got {side!r}")

    def target(self, height: int, width: int) -> tuple[int, int] | None:
        """Return the (height, width) to which an image of this size must be resized; None for no change."""
        longer, shorter = max(height, width), min(height, width)
        for limit, side in ((self.max_side, longer), (self.shorter_side, shorter)):
            if limit is not None and side > limit:
                # Rounded down, as torchvision does.
                return max(1, height * limit // side), max(1, width * limit // side)
        return self.size if self.size != (height, width) else None


@dataclass(frozen=True, slots=True)
class Resampling:
    """A method of resampling; raises OptionError for an unknown filter.

    `nearest` is torchvision's for tensors, `nearest-exact` PIL's. For bilinear and bicubic: with `antialias`,
    every source pixel counts when an image shrinks, and PyTorch's kernels make results equal to
    torchvision's; without, some source pixels are ignored, and bilinear is OpenCV's, which is faster.
    """

    filter: str = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        if self.filter not in _FILTERS:
            raise OptionError(f"interpolation must be one of {', '.join(_FILTERS)}, got {self.filter!r}")


_ANTIALIASED = Resampling()


def resize(image: Pixels, height: int, width: int, resampling: Resampling = _ANTIALIASED) -> Pixels:
    """Return a resampled image, (height, width, channels), contiguous; see `resize_into`."""
    out = np.empty((height, width, image.shape[2]), image.dtype)
    resize_into(image, out, resampling)
    return out


def resize_into(image: Pixels, out: Pixels, resampling: Resampling = _ANTIALIASED) -> None:
    """Resample an image, (height, width, channels), into a contiguous array of its dtype.

    With antialiasing, PyTorch's uint8 kernel takes 80 µs for 260x262 to 224x224, where PIL takes 480. It has
    none for other integers and float16: these pass through float32.
    """
    if image.shape == out.shape:
        np.copyto(out, image)
    elif resampling.filter.startswith("nearest"):
        _take_nearest(image, out, 0.5 if resampling.filter == "nearest-exact" else 0.0)
    elif resampling.filter == "bicubic" or (resampling.filter == "bilinear" and resampling.antialias):
        if image.dtype in _INTERLEAVED:
            _upsample(image, _channels_last(out), resampling)
        else:
            _resize_planes(image, out, resampling)
    elif image.dtype == np.float16:
        height, width = out.shape[:2]
        np.copyto(out, resize(image.astype(np.float32), height, width, resampling), casting="unsafe")
    else:
        size = out.shape[1::-1]
        interpolation = cv2.INTER_AREA if resampling.filter == "area" else cv2.INTER_LINEAR
        if out.shape[2] == 1:
            out[:, :, 0] = cv2.resize(image, size, interpolation=interpolation)
        else:
            cv2.resize(image, size, dst=out, interpolation=interpolation)


def _take_nearest(image: Pixels, out: Pixels, middle: float) -> None:
    """Select the rows and columns that PyTorch selects; `middle` is the reference point within a pixel.

    If two are equally near, OpenCV's resize selects the other.
    """
    rows, columns = (_nearest(*sides, middle) for sides in zip(image.shape[:2], out.shape[:2], strict=True))
    taken = image.take(rows, axis=0)
    if image.shape[2] > _TRANSPOSED_CHANNELS:
        np.take(taken, columns, axis=1, out=out)
        return
    # Columns are selected as rows, three times as fast: 30 µs for 224x224.
    turned = cv2.transpose(taken).take(columns, axis=0)
    cv2.transpose(turned, dst=out[:, :, 0] if out.shape[2] == 1 else out)


def _nearest(side: int, new_side: int, middle: float) -> NDArray[np.int64]:
    """Return the selected rows or columns of an image, computed in single precision like PyTorch's."""
    places = (np.arange(new_side, dtype=np.float32) + np.float32(middle)) * np.float32(side / new_side)
    return np.minimum(places.astype(np.int64), side - 1)


def _resize_planes(image: Pixels, out: Pixels, resampling: Resampling) -> None:
    """Resample by way of planes of float32, in which PyTorch's kernel for floats works.

    Interleaved by OpenCV, which takes 30 µs for 4 channels of 256x256 pixels; the kernel itself takes 400.
    """
    import torch

    height, width, channels = out.shape
    planes = reusable_array((channels, height, width), np.float32)
    _upsample(image.astype(np.float32, copy=False), torch.from_numpy(planes)[None], resampling)
    if out.dtype.kind in "iu":
        np.rint(planes, out=planes)
        if (
            resampling.filter == "bicubic"
        ):  # whose weights may be negative, and give numbers beyond the dtype's
            bounds = np.iinfo(out.dtype.name)
            np.clip(planes, bounds.min, bounds.max, out=planes)
    typed = planes.astype(out.dtype, copy=False)
    if channels == 1 or out.dtype == np.float16:
        np.copyto(out, np.moveaxis(typed, 0, 2))
    else:
        cv2.merge(tuple(typed), dst=out)


def _upsample(image: Pixels, out: torch.Tensor, resampling: Resampling) -> None:
    """Call PyTorch's kernel for an image and a result (1, channels, height, width) of any memory format."""
    import torch

    aten = torch.ops.aten
    kernel: Any
    if resampling.filter == "bilinear":
        kernel = aten._upsample_bilinear2d_aa
    else:
        kernel = aten._upsample_bicubic2d_aa if resampling.antialias else aten.upsample_bicubic2d
    # The kernel would copy a non-contiguous image as well, and slower.
    is_usable = image.flags.c_contiguous and image.flags.writeable
    source = _channels_last(image if is_usable else image.copy())
    kernel.out(source, out.shape[2:], False, None, None, out=out)


def _channels_last(pixels: Pixels) -> torch.Tensor:
    # `tensor[None]` would give the batch a stride of 0, which torch interprets as NCHW: the result would be
    # planar, and take 170 µs longer. These strides are unambiguous.
    import torch

    height, width, channels = pixels.shape
    shape = (1, channels, height, width)
    strides = (height * width * channels, 1, width * channels, channels)
    return torch.from_numpy(pixels).as_strided(shape, strides)
