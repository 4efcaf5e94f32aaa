"""Checks and conversions of the parameters of transforms."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeGuard, TypeVar

import numpy as np

from fastload.errors import OptionError
from fastload.images.arrays import DType
from fastload.images.resize import Resampling

SizeOption = int | Sequence[int]  # pixels, or (height, width)
Amount = float | Sequence[float]  # one number, or several
FillColour = float | Sequence[float] | None  # one number, or one for each channel
FillLevels = float | tuple[float, ...] | None  # a FillColour that a cache can look up
Fill = FillColour | Mapping[Any, FillColour]  # a colour, or one for each type of input

Filter = str | int | Enum  # a name, a number of PIL, InterpolationMode or torchvision's

ABOVE_0 = math.ulp(0.0)  # the smallest number above 0, as a lower bound

SEVERAL = range(1, 1 << 30)  # any count above 0

IMAGE_TYPES = ("Image", "Tensor")  # names of PIL's class, of torchvision's and of torch's

_Value = TypeVar("_Value")

# PIL's numbers of its filters, which torchvision accepts too.
_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}


class InterpolationMode(str, Enum):
    """Interpolation methods, with torchvision's names and values; torchvision's transforms accept them too.

    `BOX`, `HAMMING` and `LANCZOS` exist in PIL only: fastload's transforms refuse them.
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class Described:
    """Base class of objects whose repr is the call that makes them."""

    def __repr__(self) -> str:
        names = [name for name in inspect.signature(type(self)).parameters if name in vars(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def require(is_valid: bool, rule: str, value: object) -> None:
    """Raise OptionError, with a rule ("p must be …") and the value, unless the value is valid."""
    if not is_valid:
        raise OptionError(f"{rule}, got {value!r}")


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a real number, Python's or NumPy's."""
    return isinstance(value, numbers.Real)


def is_whole(value: object) -> TypeGuard[int]:
    """Return True for an integer, Python's or NumPy's, but not for a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def to_number(value: object, name: str, least: float = 0, most: float = math.inf) -> float:
    """Return a number, checked to be from `least` to `most`."""
    if not (is_number(value) and least <= value <= most):
        raise OptionError(f"{name} must be a number{_within(least, most)}, got {value!r}")
    return float(value)


def to_whole(value: object, name: str, least: int, most: float = math.inf) -> int:
    """Return a whole number, checked to be from `least` to `most`."""
    if not (is_whole(value) and least <= value <= most):
        raise OptionError(f"{name} must be a whole number{_within(least, most)}, got {value!r}")
    return int(value)


def to_list(value: object) -> list[Any]:
    """Return a list or tuple as a list, and any other value as a list of one."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def to_numbers(
    value: object,
    rule: str,
    counts: Sequence[int],
    least: float = -math.inf,
    most: float = math.inf,
    *,
    kind: Callable[[object], bool] = is_number,
    is_ordered: bool = False,
) -> tuple[Any, ...]:
    """Return one number or several as a tuple; raise OptionError, with the rule, if they are invalid.

    Their number must be one of `counts`, and each must satisfy `kind` and be from `least` to `most`; with
    `is_ordered`, none may be smaller than the one before it.
    """
    values = to_list(value)
    is_valid = len(values) in counts and all(kind(each) and least <= each <= most for each in values)
    require(is_valid and (not is_ordered or values == sorted(values)), rule, value)
    return tuple(values)


def to_two(value: object, rule: str, *bounds: float, **checks: Any) -> tuple[Any, Any]:
    """Return one number twice, or two numbers; see `to_numbers` for the checks."""
    values = to_numbers(value, rule, (1, 2), *bounds, **checks)
    return values[0], values[-1]


def to_range(value: object, name: str, least: float = ABOVE_0, most: float = math.inf) -> tuple[float, float]:
    """Return (low, high), both checked to be from `least` to `most`, the smaller first."""
    rule = f"{name} must be two numbers{_within(least, most)}, the smaller first"
    low, high = to_numbers(value, rule, (2,), least, most, is_ordered=True)
    return low, high


def to_span(
    value: object, name: str, middle: float = 0.0, least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Return a range (low, high), given as such or as the distance of both from its middle."""
    if is_number(value) and 0 <= value <= most - middle:
        return max(least, middle - float(value)), middle + float(value)
    bounds = _within(0, most - middle), _within(least, most)
    rule = f"{name} must be a number{bounds[0]}, or a range (low, high){bounds[1]}"
    low, high = to_numbers(value, rule, (2,), least, most, is_ordered=True)
    return float(low), float(high)


def to_size(size: object, name: str = "size") -> tuple[int, int]:
    """Return (height, width) for an int or a sequence of one or two; raise OptionError for anything else."""
    rule = f"{name} must be a whole number of pixels, or (height, width)"
    height, width = to_two(size, rule, 1, kind=is_whole)
    return int(height), int(width)


def to_probability(p: object) -> float:
    """Return a probability as a float; raise OptionError if it is not one."""
    if not (is_number(p) and 0 <= p <= 1):
        raise OptionError(f"p must be a probability, 0 to 1, got {p!r}")
    return float(p)


def to_colour(fill: FillColour, channels: int | None = None) -> tuple[float, ...]:
    """Return a fill colour as at least the four numbers that OpenCV takes; those of missing channels are 0.

    It must be one number, one for each of `channels` (None: not known yet), or None for 0.
    """
    colour = tuple(to_list(0 if fill is None else fill))
    is_colour = bool(colour) and all(map(is_number, colour))
    require(is_colour, "fill must be a number, or one for each channel", fill)
    if channels is not None:
        colour *= channels if len(colour) == 1 else 1
        rule = f"fill must be one number, or one for each of {channels} channels"
        require(len(colour) == channels, rule, fill)
    return (*colour, 0, 0, 0)[: max(4, len(colour))]


@functools.lru_cache(256)
def to_levels(fill: FillLevels, channels: int, dtype: DType) -> tuple[float, ...]:
    """Return a fill colour as `to_colour` does; raise OptionError if pixels of that dtype cannot hold it."""
    colour = to_colour(fill, channels)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype.name)
        rule = f"fill must be from {bounds.min} to {bounds.max} for pixels of {dtype}"
        require(all(bounds.min <= level <= bounds.max for level in colour), rule, fill)
    return colour


class MaskFill(NamedTuple):
    """The numbers that masks get where nothing is moved: those of classes, and those of objects."""

    classes: float = 0
    objects: float = 0


def to_fills(fill: Fill) -> tuple[FillLevels, MaskFill]:
    """Return the colour that pixels outside of an image get, and what those of its masks get.

    A class is one number as in torchvision, or 0. A dict has one fill for each type; as in torchvision, that
    of a missing type is "others", or 0.
    """
    if isinstance(fill, Mapping):
        image, mask = of_type(fill, IMAGE_TYPES, "fill"), of_type(fill, ("Mask",), "fill")
    else:
        image = mask = fill
    to_colour(image)
    level = mask if is_number(mask) else 0
    levels = tuple(image) if isinstance(image, Sequence) else image
    return levels, MaskFill(level, level if isinstance(fill, Mapping) else 0)


def of_type(by_type: Mapping[Any, _Value], names: Sequence[str], owner: str) -> _Value | None:
    """Return the value for types with one of these names, else that of "others", else None."""
    found = [value for kind, value in by_type.items() if getattr(kind, "__name__", "") in names]
    rule = f"{owner} must be the same for all types of images, because a dataset has one"
    require(all(value == found[0] for value in found), rule, by_type)
    return found[0] if found else by_type.get("others", None)


def to_resampling(interpolation: Filter, antialias: bool | None = True) -> Resampling:
    """Return the resampling for torchvision's parameters; an antialias of None means True."""
    name: Any = interpolation.value if isinstance(interpolation, Enum) else interpolation
    return Resampling(_PIL_FILTERS.get(name, name), antialias is not False)


def _within(least: float, most: float) -> str:
    if most < math.inf:
        return f" from {least:g} to {most:g}"
    if least == ABOVE_0:
        return " above 0"
    return f" of at least {least:g}" if least > -math.inf else ""
