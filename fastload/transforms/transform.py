"""What every transform of this package is: it draws its parameters, then applies them.

    parameters = transform.draw(draws, sizes)          # for a whole batch: float64 (images, transform.width)
    image = transform.apply(image, parameters[i])      # to one image, (height, width, channels)
    images = transform.apply_batch(images, parameters) # to images of one size, the first of four axes

Called like a function, a transform takes what torchvision's take, and returns the same kind.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.images.resize import Resampling
from fastload.transforms.draws import Draws, fresh_draws
from fastload.transforms.geometry import Geometry, Sizes

Pixels = NDArray[Any]  # (height, width, channels), or with the images of a batch in front
Parameters = NDArray[np.float64]  # (images, width)

# PIL's numbers for its filters, which torchvision takes too.
_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


class Transform:
    """The base of all transforms.

    Attributes:
        width: How many parameters an image has.
    """

    width: int = 0

    #: Whether it takes pixels of any type; others want uint8.
    takes_any_dtype: ClassVar[bool] = False

    #: Whether `apply_batch` changes the images that it is given, and returns them.
    works_in_place: ClassVar[bool] = False

    def draw(self, draws: Draws, sizes: Sizes) -> Parameters:
        """Draws the parameters for images of these sizes.

        Args:
            draws: Random numbers for each image.
            sizes: (images, 2), heights and widths, in pixels.

        Returns:
            (images, `width`).
        """
        return np.empty((len(sizes), 0))

    def sizes_after(self, sizes: Sizes, parameters: Parameters) -> Sizes:
        """The sizes that images of these sizes will have."""
        return sizes

    def channels_after(self, channels: int) -> int:
        """The channels that an image of so many will have."""
        return channels

    def fold(self, geometry: Geometry, parameters: Parameters) -> bool:
        """Adds what it does to a geometry; returns whether that can be said so."""
        return False

    def apply(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """Applies parameters to one image, which stays as it is.

        Args:
            image: (height, width, channels), possibly read-only, possibly not contiguous.
            parameters: One row of what `draw` returned.

        Returns:
            The result; it may be a view of `image`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define apply(self, image, parameters)")

    def apply_batch(self, images: Pixels, parameters: Parameters) -> Pixels:
        """Applies parameters to images of one size, of which the results have one size too.

        Args:
            images: (images, height, width, channels), contiguous; may be changed.
            parameters: What `draw` returned.

        Returns:
            (images, height, width, channels).
        """
        rows = parameters.tolist()
        results = [self.apply(image, row) for image, row in zip(images, rows, strict=True)]
        return np.stack(results)

    def apply_batch_into(self, images: Pixels, parameters: Parameters, out: Pixels) -> None:
        """`apply_batch`, with the result in `out`, which has its shape and type."""
        np.copyto(out, self.apply_batch(images, parameters))

    def __call__(self, image: Any) -> Any:
        """Transforms an image, or a batch, each image of it by parameters of its own.

        Args:
            image: A tensor (3, height, width) or (images, 3, height, width), an array (height, width, 3) or
                (images, height, width, 3), or a PIL image. Grey ones have 1 in place of 3.

        Returns:
            The same kind.

        Raises:
            OptionError: It is none of these, or of a type that the transform does not take.
        """
        pixels = to_pixels(image)
        batch = pixels[None] if pixels.ndim == 3 else pixels
        draws = fresh_draws(len(batch))
        sizes = np.tile(np.array([batch.shape[1:3]], np.int64), (len(batch), 1))
        parameters = self.draw(draws, sizes)
        results = [
            self.apply_checked(pixels, row) for pixels, row in zip(batch, parameters.tolist(), strict=True)
        ]
        if len({result.shape for result in results}) > 1:
            raise OptionError(
                f"{type(self).__name__} must leave a batch's images one size, got {results[0].shape[:2]} "
                "and others: call it for one image after the other"
            )
        return like(image, results[0] if pixels.ndim == 3 else np.stack(results))

    def apply_checked(self, image: Pixels, parameters: Sequence[float]) -> Pixels:
        """`apply`, where the image's type is one that the transform takes.

        Raises:
            OptionError: It is not.
        """
        self.require_dtype(image.dtype)
        return self.apply(image, parameters)

    def require_dtype(self, dtype: np.dtype[Any]) -> None:
        """Requires pixels of a type that the transform takes.

        Raises:
            OptionError: It is not.
        """
        if dtype != np.uint8 and not self.takes_any_dtype:
            raise OptionError(
                f"{type(self).__name__} takes uint8 pixels, got {dtype}: "
                "put it before what makes them numbers of another type (ToTensor, ToDtype, Normalize)"
            )

    @classmethod
    def get_params(cls, *args: object, **kwargs: object) -> NoReturn:
        """Says where torchvision's method of this name is: here `draw` draws, for all images of a batch.

        Raises:
            OptionError: Always.
        """
        raise OptionError(
            f"fastload.transforms.{cls.__name__} has no get_params: use torchvision.transforms.{cls.__name__}"
            ".get_params, and torchvision's functions with what it returns"
        )

    def __repr__(self) -> str:
        shown = {
            name: value for name, value in vars(self).items() if not name.startswith("_") and name != "width"
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def to_pixels(image: Any) -> Pixels:
    """An image of any kind as an array (height, width, channels), of a batch with the images in front.

    Raises:
        OptionError: It is no image.
    """
    if isinstance(image, np.ndarray):
        pixels = image[:, :, None] if image.ndim == 2 else image
        # NumPy takes sides of one pixel for contiguous whatever their stride, torch does not.
        if 1 in pixels.shape and min(pixels.strides) < 0:
            pixels = pixels.copy()
    elif _is_tensor(image):
        _require_numpy_dtype(image)
        pixels = np.moveaxis(image.detach().cpu().numpy(), -3, -1) if image.ndim in (3, 4) else np.empty(0)
    elif is_pil(image):
        if image.mode.startswith(("I", "F")):
            # PIL would make 255 of every level above it.
            raise OptionError(
                f"a PIL image must be of bytes, got one of mode {image.mode!r}, which ToTensor and "
                "PILToTensor take: put one of them before this"
            )
        pixels = np.asarray(image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB"))
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    else:
        raise OptionError(f"an image must be a tensor, an array or a PIL image, got {type(image).__name__}")
    if pixels.ndim not in (3, 4) or 0 in pixels.shape:
        raise OptionError(
            "an image must be a tensor (channels, height, width), an array (height, width, channels) or a "
            f"PIL image, and not empty, got {type(image).__name__} of shape {tuple(image.shape)}"
        )
    return pixels


def _require_numpy_dtype(image: Any) -> None:
    if str(image.dtype) == "torch.bfloat16":
        raise OptionError("an image must be of a type that NumPy has, got bfloat16: make it that at the end")


def like(image: Any, pixels: Pixels) -> Any:
    """Pixels as the kind of image that another one is; numbers that PIL cannot hold as a tensor."""
    if isinstance(image, np.ndarray):
        return pixels[:, :, 0] if image.ndim == 2 and pixels.shape[2] == 1 else pixels
    if is_pil(image):
        return to_pil(pixels) if pixels.dtype == np.uint8 else to_tensor(pixels)
    return to_tensor(pixels).to(image.device)


def to_tensor(pixels: Pixels) -> Any:
    """An array (..., height, width, channels) as a tensor (..., channels, height, width), a view of it."""
    import torch

    if not pixels.flags.writeable or any(stride < 0 for stride in pixels.strides):
        pixels = pixels.copy(order="K")
    return torch.from_numpy(np.moveaxis(pixels, -1, -3))


def to_pil(pixels: Pixels) -> Any:
    """An array (height, width, channels) as a PIL image."""
    from PIL import Image

    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def to_resampling(interpolation: Any, antialias: bool | None = True) -> Resampling:
    """The way of resampling that torchvision's parameters name.

    Args:
        interpolation: A name, torchvision's InterpolationMode, or PIL's number.
        antialias: As torchvision takes it; None is True.

    Raises:
        OptionError: There is no such interpolation.
    """
    name = getattr(interpolation, "value", interpolation)
    return Resampling(_PIL_FILTERS.get(name, name), antialias is not False)


def to_pair(value: Any, name: str) -> tuple[float, float]:
    """Two numbers, low and high.

    Raises:
        OptionError: It is no pair.
    """
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return value[0], value[1]
    raise OptionError(f"{name} must be two numbers, got {value!r}")


def to_colour(fill: Any, channels: int | None = None) -> tuple[float, ...]:
    """A colour to fill with, of four numbers, as OpenCV takes it: what is not needed is 0.

    Args:
        fill: One number, one for each channel, or None for 0.
        channels: How many there are; None where that is not known yet.

    Raises:
        OptionError: It is no colour, or has not as many numbers as the image has channels.
    """
    colour = tuple(fill) if isinstance(fill, (tuple, list)) else (0 if fill is None else fill,)
    if not colour or not all(isinstance(number, (int, float)) for number in colour):
        raise OptionError(f"fill must be a number, or one for each channel, got {fill!r}")
    if channels is not None:
        colour *= channels if len(colour) == 1 else 1
        if len(colour) != channels:
            raise OptionError(
                f"fill must be one number, or one for each of {channels} channels, got {fill!r}"
            )
    return (*colour, 0, 0, 0)[:4]


def to_size(size: Any, name: str = "size") -> tuple[int, int]:
    """(height, width) of an int or a sequence of one or two.

    Raises:
        OptionError: It is neither, or not positive.
    """
    sides = list(size) if isinstance(size, (tuple, list)) else [size]
    if len(sides) not in (1, 2) or not all(is_whole(side) and side >= 1 for side in sides):
        raise OptionError(f"{name} must be a whole number of pixels, or (height, width), got {size!r}")
    return int(sides[0]), int(sides[-1])


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, Python's or NumPy's; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def to_probability(p: Any) -> float:
    """A probability.

    Raises:
        OptionError: It is none.
    """
    if isinstance(p, (int, float)) and 0 <= p <= 1:
        return float(p)
    raise OptionError(f"p must be a probability, 0 to 1, got {p!r}")


def _is_tensor(image: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(image, torch.Tensor)


def is_pil(image: Any) -> bool:
    """Whether something is a PIL image; without importing PIL."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(image, pil.Image)
