"""Steps of the transforms of other libraries: the known ones, and how each is carried out.

A known transform still draws its random parameters with its own functions, from the same generators; only its
pixels are computed differently.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import PIL.Image
import torch

from fastload.datasets.compiled.lazy import LazyImage
from fastload.errors import OptionError
from fastload.images.region import Box
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


class Untyped(Protocol):
    """An object of a library that has no types."""

    def __getattr__(self, name: str, /) -> Any: ...


class Foreign(Untyped, Protocol):
    """A transform of such a library."""

    def __call__(self, *inputs: object, **options: object) -> Any: ...


ImageStep = Callable[[PIL.Image.Image], PIL.Image.Image]


class CompiledStep(NamedTuple):
    """One transform of a pipeline.

    Attributes:
        theirs: The original transform.
        name: The name of the torchvision transform that it is or is equivalent to; else "".
        kind: The way in which it is carried out.
        call: Applies it to a LazyImage; for `unknown`, to the result of the previous step.
        rescaling: For `rescale`, fastload's equivalent transform.
        closeness: The greatest difference from the original's pixels.
    """

    theirs: Foreign
    name: str
    kind: StepKind
    call: Callable[[Any], Any]
    rescaling: Rescaling | None = None
    closeness: str = "equal"


def steps_of(transform: Foreign | None) -> list[CompiledStep]:
    """Return the steps of a transform; a Compose or Sequential is replaced by its own steps."""
    return [_step_of(each) for each in _flattened(transform)]


def _flattened(transform: Foreign | None) -> Iterator[Foreign]:
    if transform is None:
        return
    name = _name_of(transform)
    if name == "Compose" or type(transform) is torch.nn.Sequential:
        for each in transform.transforms if name == "Compose" else vars(transform)["_modules"].values():
            yield from _flattened(each)
    elif name == "ImageClassification":
        yield from _preset_steps(transform)
    elif not name and (delegate := _delegate_of(transform)) is not None:
        yield from _flattened(delegate)
    else:
        yield transform


def _delegate_of(transform: Foreign) -> Foreign | None:
    """Return the callable to which `transform` passes its argument; None if it does anything else.

    The class of such a callable has a one-line `__call__`, `return self.transforms(image)`, with any names; a
    Module has such a `forward`, and no hooks.
    """
    kind = type(transform)
    call: object = kind.__call__
    inner: Mapping[str, Foreign] = {}
    if isinstance(transform, torch.nn.Module) and call is torch.nn.Module.__call__:
        if any(hooks for name, hooks in vars(transform).items() if name.endswith("_hooks")):
            return None
        call, inner = type(transform).forward, vars(transform)["_modules"]
    ours = _delegating.__code__
    if not isinstance(call, types.FunctionType) or call.__code__.co_code != ours.co_code:
        return None
    if call.__code__.co_argcount != ours.co_argcount:
        return None
    [name] = call.__code__.co_names
    # Only an attribute of the instance itself counts, and only if that line would find the same one.
    is_plain = kind.__getattribute__ is object.__getattribute__
    found = {**inner, **vars(transform)}.get(name) if is_plain and hasattr(transform, "__dict__") else None
    return None if inspect.isdatadescriptor(getattr(kind, name, None)) else found


def _delegating(self: Foreign, image: object) -> object:
    return self.transforms(image)


def _preset_steps(preset: Foreign) -> list[Foreign]:
    """Return the transforms equivalent to torchvision's preset for a model, which calls functions instead."""
    from torchvision import transforms

    return [
        transforms.Resize(preset.resize_size, preset.interpolation, antialias=preset.antialias),
        transforms.CenterCrop(preset.crop_size),
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(preset.mean, preset.std),
    ]


def _step_of(theirs: Foreign) -> CompiledStep:
    name = _name_of(theirs)
    if name in _CONTAINERS:
        return _container(theirs, name)
    known = _KNOWN.get(name, _UNKNOWN)
    try:
        made = known.make(theirs)
    except OptionError:
        made = None  # fastload's transform does not support these parameters
    if made is None:
        return CompiledStep(theirs, name, "unknown", theirs)
    if isinstance(made, Rescaling):
        return CompiledStep(theirs, name, known.kind, theirs, made, known.closeness)
    return CompiledStep(theirs, name, known.kind, made, None, known.closeness)


def _name_of(step: object) -> str:
    """Return the name of a transform of torchvision, or of an equivalent one of timm; "" for all others.

    Subclasses are others.
    """
    kind = type(step)
    if is_timms(step):
        return _TIMM_NAMES.get(kind.__name__, "")
    if kind.__module__.partition(".")[0] != "torchvision":
        return ""
    from torchvision import transforms
    from torchvision.transforms import _presets, v2

    homes = (transforms, v2, _presets)
    return kind.__name__ if any(getattr(home, kind.__name__, None) is kind for home in homes) else ""


def is_v2(step: object) -> bool:
    """Return True for a transform of torchvision.transforms.v2."""
    return type(step).__module__.startswith("torchvision.transforms.v2")


def is_timms(step: object) -> bool:
    """Return True for one of timm's own transforms."""
    return type(step).__module__ == "timm.data.transforms"


def _container(theirs: Foreign, name: str) -> CompiledStep:
    """Return the step of a RandomApply, RandomChoice or RandomOrder, with its transforms compiled."""
    inner = [steps_of(each) for each in theirs.transforms]
    kinds = {step.kind for steps in inner for step in steps}
    if not kinds <= {"region", "pixels"}:
        return CompiledStep(theirs, name, "unknown", theirs)
    ours = copy.copy(theirs)
    vars(ours)["_modules"] = {}
    vars(ours)["transforms"] = [_in_order(steps) for steps in inner]
    return CompiledStep(theirs, name, "pixels" if "pixels" in kinds else "region", ours)


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

    def draw() -> Sequence[float]:
        if is_v2(theirs):
            order, *amounts = theirs.make_params([]).values()
        else:
            order, *amounts = theirs.get_params(*ranges)
        return [*order.tolist(), *(0.0 if amount is None else amount for amount in amounts)]

    only_saturates = all(each is None for each in (theirs.brightness, theirs.contrast, theirs.hue))
    return _adjusting(ColorJitter(*ranges), draw, keeps_info=only_saturates)


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


def _to_dtype(theirs: Foreign) -> Rescaling | None:
    scale = getattr(theirs, "scale", True)
    return ToDtype(theirs.dtype, scale) if isinstance(theirs.dtype, torch.dtype) else None


class _Known(NamedTuple):
    """Treatment of a known transform.

    `make` returns the function that is called, or the equivalent Rescaling; None if there is none. The
    closeness is the bound that tests/datasets/compiled/pipelines.py asserts for noise; photos are closer.
    """

    kind: StepKind
    make: Callable[[Foreign], Callable[[Any], Any] | Rescaling | None] = lambda theirs: theirs
    closeness: str = "equal"


_UNKNOWN = _Known("unknown")
_REGION, _CONVERSION = _Known("region"), _Known("conversion")
_RESIZE = _REGION._replace(closeness="within two levels if bilinear")
_LEVEL, _ROUNDING = "within a level", "within rounding"
_JITTER = f"{_LEVEL} for each kind of change; hue of PIL images by more"
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
    "ColorJitter": _Known("pixels", _color_jitter, _JITTER),
    "GaussianBlur": _Known("pixels", _gaussian_blur, _LEVEL),
    "Grayscale": _Known("pixels", _grayscale, _LEVEL),
    "RandomGrayscale": _Known("pixels", lambda theirs: _by_chance(theirs, Grayscale(3), False), _LEVEL),
    "RandomAdjustSharpness": _Known("pixels", _sharpness, _LEVEL),
    "RandomAutocontrast": _Known("pixels", lambda theirs: _by_chance(theirs, RandomAutocontrast()), _LEVEL),
    "RandomEqualize": _Known("pixels", lambda theirs: _by_chance(theirs, RandomEqualize())),
    "RandomInvert": _Known("pixels", lambda theirs: _by_chance(theirs, RandomInvert())),
    "RandomPosterize": _Known("pixels", lambda theirs: _by_chance(theirs, RandomPosterize(theirs.bits))),
    "RandomSolarize": _Known("pixels", lambda theirs: _by_chance(theirs, RandomSolarize(theirs.threshold))),
}
# Transforms of timm, and those of torchvision that they are equivalent to.
_TIMM_NAMES = {
    **{name: name for name in ("CenterCropOrPad", "RandomCropOrPad", "TrimBorder")},
    **{name: name for name in ("RandomResizedCropAndInterpolation", "ResizeKeepRatio")},
    "MaybePILToTensor": "PILToTensor",
    "MaybeToTensor": "ToTensor",
}
_CONTAINERS = {"RandomApply", "RandomChoice", "RandomOrder"}
