"""Steps of the transforms of other libraries: the known ones, and how each is carried out.

A known transform still draws its random parameters with its own functions, from the same generators; only its
pixels are computed differently.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray

from fastload.contracts import Box
from fastload.datasets.compiled.jitter import jittered
from fastload.datasets.compiled.lazy import LazyImage
from fastload.datasets.compiled.recognition import Foreign, flattened, has_hooks, is_v2, name_of
from fastload.errors import OptionError
from fastload.images.arrays import Pixels
from fastload.transforms import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    Normalize,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
    ToDtype,
    ToTensor,
)
from fastload.transforms.levels.rescaling import Rescaling
from fastload.transforms.transform import Transform

# Region: a crop, resize or flip, done while decoding. Pixels: an adjustment by OpenCV. Conversion: between
# kinds of images. Rescale: arithmetic on levels, once for a batch. Erase: the filling of boxes after that.
StepKind = Literal["region", "pixels", "conversion", "rescale", "erase", "unknown"]


ImageStep = Callable[[PIL.Image.Image], PIL.Image.Image]


class Closeness(NamedTuple):
    """Greatest difference from the original's pixels, in levels of 255, and a clause that says so.

    The difference is that of photos, as measured by benchmarks/check_closeness.py.
    """

    levels: float
    text: str


EQUAL = Closeness(0, "equal")
_ROUNDING = Closeness(0, "within rounding")
_LEVEL = Closeness(1, "within a level")
_TWO_LEVELS = Closeness(2, "within two levels")
_OVERSHOOT = Closeness(16, "within two levels, but for edges where bicubic weights overshoot")
_SEVERAL = Closeness(5, "within a level for each kind of change")


class CompiledStep(NamedTuple):
    """One transform of a pipeline.

    Attributes:
        theirs: The original transform.
        name: The name of the torchvision transform that it is or is equivalent to; else "".
        kind: The way in which it is carried out.
        call: Applies it to a LazyImage; for `unknown`, to the result of the previous step.
        rescaling: For `rescale`, fastload's equivalent transform.
        closeness: Greatest difference from the original's pixels, of PIL images.
        tensor_closeness: The same, of images that are tensors by then.
        least_pixels: Size of an image in memory from which on this step makes its pipeline faster; infinite
            for steps that save less than recording an image costs.
    """

    theirs: Foreign
    name: str
    kind: StepKind
    call: Callable[[Any], Any]
    rescaling: Rescaling | None = None
    closeness: Closeness = EQUAL
    tensor_closeness: Closeness = EQUAL
    least_pixels: float = math.inf


def steps_of(transform: Foreign | None) -> list[CompiledStep]:
    """Return the steps of a transform; a Compose or Sequential is replaced by its own steps."""
    return [_step_of(each) for each in flattened(transform)]


def _step_of(theirs: Foreign) -> CompiledStep:
    name = "" if has_hooks(theirs) else name_of(theirs)
    if name in _CONTAINERS:
        return _container(theirs, name)
    known = _KNOWN.get(name, _UNKNOWN)
    try:
        made = known.make(theirs)
    except OptionError:
        made = None  # fastload's transform does not support these parameters
    if made is None:
        return CompiledStep(theirs, name, "unknown", theirs)
    closeness = known.closeness(theirs) if callable(known.closeness) else known.closeness
    both = closeness, known.tensor_closeness or closeness
    if isinstance(made, Rescaling):
        return CompiledStep(theirs, name, known.kind, theirs, made, *both)
    return CompiledStep(theirs, name, known.kind, made, None, *both, known.least_pixels(theirs))


def _container(theirs: Foreign, name: str) -> CompiledStep:
    """Return the step of a RandomApply, RandomChoice or RandomOrder, with its transforms compiled."""
    inner = [steps_of(each) for each in theirs.transforms]
    kinds = {step.kind for steps in inner for step in steps}
    if not kinds or not kinds <= {"region", "pixels"}:
        return CompiledStep(theirs, name, "unknown", theirs)
    ours = copy.copy(theirs)
    vars(ours)["_modules"] = {}
    vars(ours)["transforms"] = [_in_order(steps) for steps in inner]
    kind: StepKind = "pixels" if "pixels" in kinds else "region"
    found = [step for steps in inner for step in steps if step.kind == kind]
    both = max(step.closeness for step in found), max(step.tensor_closeness for step in found)
    least_pixels = min(step.least_pixels for steps in inner for step in steps)
    return CompiledStep(theirs, name, kind, ours, None, *both, least_pixels)


def _in_order(steps: Sequence[CompiledStep]) -> ImageStep:
    return lambda image: functools.reduce(lambda result, step: step.call(result), steps, image)


def _erasing(theirs: Foreign) -> Callable[[LazyImage], LazyImage]:
    """Return a RandomErasing that records the box that it draws instead of filling it."""
    name = "make_params" if is_v2(theirs) else "get_params"
    drawn: list[Any] = []

    def record(*args: object, **options: object) -> object:
        drawn[:] = [getattr(theirs, name)(*args, **options)]
        return drawn[0]

    recorder = copy.copy(theirs)
    vars(recorder)[name] = record

    def erase(image: LazyImage) -> LazyImage:
        height, width, channels = image.shape
        # A tensor with the size of the finished image, but without data.
        probe = torch.empty((channels, height, width), device="meta")
        drawn.clear()
        recorder(probe)
        for each in drawn:
            top, left, box_height, box_width, value = each.values() if isinstance(each, dict) else each
            if value is not None and value is not probe:
                image.erasures.append((Box(top, left, box_height, box_width), value))
        return image

    return erase


def _adjusting(
    ours: Transform, draw: Callable[[], Sequence[float] | None], keeps_info: bool = False
) -> ImageStep:
    """Return a function that draws parameters and records an adjustment by a transform of fastload.

    Without parameters, the image is left. With `keeps_info`, the result keeps the image's `info`; most of
    torchvision's transforms lose it.
    """

    def adjust(image: PIL.Image.Image) -> PIL.Image.Image:
        row = draw()
        if row is None:
            return image
        lazy = LazyImage.of(image)
        channels = ours.channels_after(lazy.shape[2])
        return lazy.changed(lambda pixels: ours.apply(pixels, row), channels, keeps_info)

    return adjust


def _by_chance(theirs: Foreign, ours: Transform, keeps_info: bool = True) -> ImageStep:
    """Return a function that adjusts an image with probability `p`, drawn as by torchvision."""
    return _adjusting(ours, lambda: None if torch.rand(1) >= theirs.p else (1.0,), keeps_info)


def _sharpness(theirs: Foreign) -> ImageStep:
    return _by_chance(theirs, RandomAdjustSharpness(theirs.sharpness_factor))


def _color_jitter(theirs: Foreign) -> ImageStep:
    ranges = theirs.brightness, theirs.contrast, theirs.saturation, theirs.hue
    for_tensors = ColorJitter(*ranges)
    only_saturates = all(each is None for each in (theirs.brightness, theirs.contrast, theirs.hue))

    def jitter(image: PIL.Image.Image) -> PIL.Image.Image:
        if is_v2(theirs):
            order, *amounts = theirs.make_params([]).values()
        else:
            order, *amounts = theirs.get_params(*ranges)
        lazy, order = LazyImage.of(image), order.tolist()
        row = [*order, *(0.0 if amount is None else amount for amount in amounts)]

        def change(pixels: Pixels) -> Pixels:
            return for_tensors.apply(pixels, row) if lazy.is_tensor else jittered(pixels, order, amounts)

        return lazy.changed(change, lazy.shape[2], keeps_info=only_saturates)

    return jitter


def _gaussian_blur(theirs: Foreign) -> ImageStep:
    low, high = theirs.sigma

    def draw() -> Sequence[float]:
        return [theirs.make_params([])["sigma"][0] if is_v2(theirs) else theirs.get_params(low, high)]

    adjust = _adjusting(GaussianBlur(theirs.kernel_size, theirs.sigma), draw)

    def blur(image: PIL.Image.Image) -> PIL.Image.Image:
        # torchvision mirrors the edges, and raises an error if the image is too small for that.
        fits = all(side // 2 < length for side, length in zip(theirs.kernel_size, image.size, strict=True))
        return (adjust if fits else theirs)(image)

    return blur


def _grayscale(theirs: Foreign) -> ImageStep:
    channels = theirs.num_output_channels
    return _adjusting(Grayscale(channels), list, keeps_info=channels == 1)


def _closeness_of_resizing(theirs: Foreign) -> Closeness:
    given = theirs.interpolation
    filters = given if isinstance(given, (tuple, list)) else [given]
    names = {str(getattr(each, "value", each)) for each in filters}  # of torchvision, timm or PIL
    if names & {"bicubic", "3"}:
        return _OVERSHOOT
    return _TWO_LEVELS if names & {"bilinear", "2"} else EQUAL


def _to_dtype(theirs: Foreign) -> Rescaling | None:
    scale = getattr(theirs, "scale", True)
    return ToDtype(theirs.dtype, scale) if isinstance(theirs.dtype, torch.dtype) else None


def least_pixels(steps: Sequence[CompiledStep]) -> float:
    """Return the size of an image in memory from which on it takes less time to record the steps of an image.

    After a crop or resize to a fixed size, that size counts.
    """
    size, least = None, math.inf
    for step in steps:
        needed = step.least_pixels
        least = min(least, needed if size is None else 0 if size >= needed else math.inf)
        if step.kind == "region" and (sides := _sides(step.theirs)).min():
            size = int(sides[0] * sides[-1])
    return least


def _sides(theirs: Foreign) -> NDArray[np.int64]:
    """Return the sides of a transform's result: one, or height and width; 0 if they are not fixed."""
    return np.atleast_1d(getattr(theirs, "size", None) or 0)


def _least_to_resize(theirs: Foreign) -> float:
    if _closeness_of_resizing(theirs) == EQUAL:
        return math.inf  # a filter that is left to PIL
    return 0 if _sides(theirs).min() >= 144 else 320 * 320


def _least_to_jitter(theirs: Foreign) -> float:
    if theirs.hue is not None:
        return 96 * 96
    return math.inf if theirs.contrast is theirs.saturation is None else 160 * 160


class _Known(NamedTuple):
    """Treatment of a known transform.

    `make` returns the function that is called, or the equivalent Rescaling; None if there is none. For
    `least_pixels` see CompiledStep: square images of noise were measured, from 32 to 512 pixels a side.
    """

    kind: StepKind
    make: Callable[[Foreign], Callable[[Any], Any] | Rescaling | None] = lambda theirs: theirs
    closeness: Closeness | Callable[[Foreign], Closeness] = EQUAL
    tensor_closeness: Closeness | None = None
    least_pixels: Callable[[Foreign], float] = lambda theirs: math.inf


_UNKNOWN = _Known("unknown")
_REGION, _CONVERSION = _Known("region"), _Known("conversion")
_RESIZE = _Known("region", lambda theirs: theirs, _closeness_of_resizing, _LEVEL, _least_to_resize)
_KNOWN = {
    **dict.fromkeys(("CenterCrop", "Identity", "RandomCrop"), _REGION),
    **dict.fromkeys(("RandomHorizontalFlip", "RandomVerticalFlip"), _REGION),
    **dict.fromkeys(("CenterCropOrPad", "RandomCropOrPad", "TrimBorder"), _REGION),
    **dict.fromkeys(("RandomResize", "RandomResizedCrop", "RandomShortestSize", "Resize"), _RESIZE),
    **dict.fromkeys(("RandomResizedCropAndInterpolation", "ResizeKeepRatio", "ScaleJitter"), _RESIZE),
    **dict.fromkeys(("PILToTensor", "ToImage", "ToPureTensor"), _CONVERSION),
    "ConvertImageDtype": _Known("rescale", _to_dtype, _ROUNDING),
    "Normalize": _Known("rescale", lambda theirs: Normalize(theirs.mean, theirs.std), _ROUNDING),
    "ToDtype": _Known("rescale", _to_dtype, _ROUNDING),
    "ToTensor": _Known("rescale", lambda theirs: ToTensor(), _ROUNDING),
    "ToPILImage": _Known("conversion", lambda theirs: theirs if theirs.mode is None else None),
    "RandomErasing": _Known("erase", _erasing),
    "ColorJitter": _Known("pixels", _color_jitter, EQUAL, _SEVERAL, _least_to_jitter),
    "GaussianBlur": _Known("pixels", _gaussian_blur, _LEVEL, None, lambda theirs: 64 * 64),
    "Grayscale": _Known("pixels", _grayscale, _LEVEL),
    "RandomGrayscale": _Known("pixels", lambda theirs: _by_chance(theirs, Grayscale(3), False), _LEVEL),
    "RandomAdjustSharpness": _Known("pixels", _sharpness, EQUAL, None, lambda theirs: 160 * 160),
    "RandomAutocontrast": _Known("pixels", lambda theirs: _by_chance(theirs, RandomAutocontrast()), _LEVEL),
    "RandomEqualize": _Known("pixels", lambda theirs: _by_chance(theirs, RandomEqualize())),
    "RandomInvert": _Known("pixels", lambda theirs: _by_chance(theirs, RandomInvert())),
    "RandomPosterize": _Known("pixels", lambda theirs: _by_chance(theirs, RandomPosterize(theirs.bits))),
    "RandomSolarize": _Known("pixels", lambda theirs: _by_chance(theirs, RandomSolarize(theirs.threshold))),
}
_CONTAINERS = {"RandomApply", "RandomChoice", "RandomOrder"}
