"""Checks and conversions of the parameters that transforms are made with."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from enum import Enum
from typing import Any

from fastload.errors import OptionError
from fastload.images.resize import Resampling

Size = int | Sequence[int]  # pixels, or (height, width)
Amount = float | Sequence[float]  # one number, or several
Fill = float | Sequence[float] | None  # a colour: one number, or one for each channel

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


def require(is_valid: bool, rule: str, value: object) -> None:
    """Raise OptionError, with a rule ("p must be …") and the value, unless the value is valid."""
    if not is_valid:
        raise OptionError(f"{rule}, got {value!r}")


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, Python's or NumPy's."""
    return isinstance(value, numbers.Real)


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer, Python's or NumPy's; True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def to_number(value: Any, name: str, least: float = 0, most: float = math.inf) -> float:
    """Return a number, checked to be from `least` to `most`."""
    bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
    require(is_number(value) and least <= value <= most, f"{name} must be a number {bounds}", value)
    return float(value)


def to_positive(value: Any, name: str) -> float:
    """Return a number, checked to be above 0."""
    require(is_number(value) and value > 0, f"{name} must be a number above 0", value)
    return float(value)


def to_whole(value: Any, name: str, least: int, most: int | None = None) -> int:
    """Return a whole number, checked to be from `least` to `most`."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    is_valid = is_whole(value) and least <= value and (most is None or value <= most)
    require(is_valid, f"{name} must be a whole number {bounds}", value)
    return int(value)


def to_list(value: Any) -> list[Any]:
    """Return a list or tuple as a list, and any other value as a list of one."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def to_pair(value: Any, name: str) -> tuple[float, float]:
    """Return two numbers as a tuple; raise OptionError if there are not two."""
    require(isinstance(value, (tuple, list)) and len(value) == 2, f"{name} must be two numbers", value)
    return value[0], value[1]


def to_range(
    value: Any, name: str, least: float | None = None, most: float = math.inf
) -> tuple[float, float]:
    """Return (low, high), checked to be from `least` (None: above 0) to `most`, the smaller first."""
    low, high = to_pair(value, name)
    is_within = is_number(low) and is_number(high) and (low > 0 if least is None else low >= least)
    bounds = "above 0" if least is None else f"from {least:g} to {most:g}"
    rule = f"{name} must be two numbers {bounds}, the smaller first"
    require(is_within and low <= high <= most, rule, value)
    return low, high


def to_size(size: Any, name: str = "size") -> tuple[int, int]:
    """Return (height, width) for an int or a sequence of one or two; raise OptionError for anything else."""
    sides = to_list(size)
    is_valid = len(sides) in (1, 2) and all(is_whole(side) and side >= 1 for side in sides)
    require(is_valid, f"{name} must be a whole number of pixels, or (height, width)", size)
    return int(sides[0]), int(sides[-1])


def to_probability(p: Any) -> float:
    """Return a probability as a float; raise OptionError if it is not one."""
    require(is_number(p) and 0 <= p <= 1, "p must be a probability, 0 to 1", p)
    return float(p)


def to_colour(fill: Any, channels: int | None = None) -> tuple[float, ...]:
    """Return a fill colour as the four numbers that OpenCV takes; those of missing channels are 0.

    It must be one number, one for each of `channels` (None: not known yet), or None for 0.
    """
    colour = tuple(to_list(0 if fill is None else fill))
    is_colour = bool(colour) and all(map(is_number, colour))
    require(is_colour, "fill must be a number, or one for each channel", fill)
    if channels is not None:
        colour *= channels if len(colour) == 1 else 1
        rule = f"fill must be one number, or one for each of {channels} channels"
        require(len(colour) == channels, rule, fill)
    return (*colour, 0, 0, 0)[:4]


def to_resampling(interpolation: Any, antialias: bool | None = True) -> Resampling:
    """Return the resampling for torchvision's parameters; an antialias of None means True."""
    name = getattr(interpolation, "value", interpolation)
    return Resampling(_PIL_FILTERS.get(name, name), antialias is not False)


def to_warp_filter(interpolation: Any) -> str:
    """Return the name of an interpolation; raise OptionError unless it is nearest or bilinear."""
    name = to_resampling(interpolation).filter
    require(name in ("nearest", "bilinear"), "interpolation must be nearest or bilinear here", name)
    return name
