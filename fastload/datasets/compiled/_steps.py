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
from typing import Any, Literal, NamedTuple

import PIL.Image
import torch

from fastload.datasets.compiled._lazy import LazyImage
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


ImageStep = Callable[[PIL.Image.Image], PIL.Image.Image]


class CompiledStep(NamedTuple):
    """One transform of a pipeline.

    Attributes:
        theirs: The original transform.
        name: The name of the torchvision transform that it is or is equivalent to; else "".
        kind: The way in which it is carried out.
        call: Applies it to a LazyImage; for `unknown`, to the result of the previous step.
        rescaling: For `rescale`, fastload's equivalent transform.
    """

    theirs: Any
    name: str
    kind: StepKind
    call: Callable[[Any], Any]
    rescaling: Rescaling | None = None


_KINDS: dict[str, StepKind] = {
    **dict.fromkeys(("CenterCrop", "Identity", "RandomCrop", "RandomResizedCrop"), "region"),
    **dict.fromkeys(("RandomHorizontalFlip", "RandomVerticalFlip"), "region"),
    **dict.fromkeys(("RandomResize", "RandomShortestSize", "Resize", "ScaleJitter"), "region"),
    **dict.fromkeys(("PILToTensor", "ToImage", "ToPureTensor"), "conversion"),
}
_TIMM_REGIONS = (
    *("CenterCropOrPad", "RandomCropOrPad", "RandomResizedCropAndInterpolation", "ResizeKeepRatio"),
    "TrimBorder",
)
_TIMM_CONVERSIONS = {"MaybePILToTensor": "PILToTensor", "MaybeToTensor": "ToTensor"}
_CONTAINERS = {"RandomApply", "RandomChoice", "RandomOrder"}


def steps_of(transform: Any) -> list[CompiledStep]:
    """Return the steps of a transform; a Compose or Sequential is replaced by its own steps."""
    return [_step_of(each) for each in _flattened(transform)]


def _flattened(transform: Any) -> Iterator[object]:
    name = _torchvision_name(transform)
    if transform is None:
        return
    if name == "Compose" or type(transform) is torch.nn.Sequential:
        for each in transform.transforms if name == "Compose" else transform:
            yield from _flattened(each)
    elif name == "ImageClassification":
        yield from _preset_steps(transform)
    elif not name and (delegate := _delegate_of(transform)) is not None:
        yield from _flattened(delegate)
    else:
        yield transform


def _delegate_of(transform: object) -> object:
    """Return the callable to which `transform` passes its argument; None if it does anything else.

    The class of such a callable has a one-line `__call__`, `return self.transforms(image)`, with any names; a
    Module has such a `forward`, and no hooks.
    """
    kind: Any = type(transform)
    call = kind.__call__
    inner: Mapping[str, object] = {}
    if isinstance(transform, torch.nn.Module) and call is torch.nn.Module.__call__:
        if any(hooks for name, hooks in vars(transform).items() if name.endswith("_hooks")):
            return None
        call, inner = kind.forward, vars(transform)["_modules"]
    if not isinstance(call, types.FunctionType) or not _is_delegating(call.__code__):
        return None
    [name] = call.__code__.co_names
    # Only an attribute of the instance itself counts, and only if that line would find the same one.
    is_plain = kind.__getattribute__ is object.__getattribute__
    found = {**inner, **vars(transform)}.get(name) if is_plain and hasattr(transform, "__dict__") else None
    return None if inspect.isdatadescriptor(getattr(kind, name, None)) else found


def _delegating(self: Any, image: object) -> object:
    return self.transforms(image)


def _is_delegating(code: types.CodeType) -> bool:
    """Return True for code that differs from the function above only in names."""
    ours = _delegating.__code__
    takes_more = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return (
        code.co_code == ours.co_code
        and (code.co_argcount, code.co_kwonlyargcount) == (ours.co_argcount, ours.co_kwonlyargcount)
        and not code.co_flags & takes_more
        and len(code.co_names) == 1
    )


def _preset_steps(preset: Any) -> list[object]:
    """Return the transforms equivalent to torchvision's preset for a model, which calls functions instead."""
    from torchvision import transforms

    resize = transforms.Resize(preset.resize_size, preset.interpolation, antialias=preset.antialias)
    return [
        resize,
        transforms.CenterCrop(preset.crop_size),
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(preset.mean, preset.std),
    ]


def _step_of(theirs: Any) -> CompiledStep:
    name = type(theirs).__name__
    if is_timms(theirs) and name in _TIMM_REGIONS:
        return CompiledStep(theirs, name, "region", theirs)
    name = _TIMM_CONVERSIONS.get(name, "") if is_timms(theirs) else _torchvision_name(theirs)
    if name in _KINDS:
        return CompiledStep(theirs, name, _KINDS[name], theirs)
    if name in _CONTAINERS:
        return _container(theirs, name)
    if name == "RandomErasing":
        return CompiledStep(theirs, name, "erase", _erasing(theirs))
    try:
        if name in _RESCALINGS and (rescaling := _RESCALINGS[name](theirs)) is not None:
            return CompiledStep(theirs, name, "rescale", theirs, rescaling)
        if name in _ADJUSTMENTS:
            return CompiledStep(theirs, name, "pixels", _ADJUSTMENTS[name](theirs))
    except OptionError:
        pass  # fastload's transform does not support these parameters
    return CompiledStep(theirs, name, "unknown", theirs)


def _torchvision_name(step: object) -> str:
    """Return the name of one of torchvision's own transforms; "" for others and for subclasses."""
    kind = type(step)
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


def _container(theirs: Any, name: str) -> CompiledStep:
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


def _erasing(theirs: Any) -> Callable[[LazyImage], LazyImage]:
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


def _by_chance(theirs: Any, ours: Transform, keeps_info: bool = True) -> ImageStep:
    """Return a function that adjusts an image with probability `p`, drawn as by torchvision."""
    return _adjusting(ours, lambda: None if torch.rand(1) >= theirs.p else (1.0,), keeps_info)


def _color_jitter(theirs: Any) -> ImageStep:
    ranges = theirs.brightness, theirs.contrast, theirs.saturation, theirs.hue

    def draw() -> Sequence[float]:
        if is_v2(theirs):
            order, *amounts = theirs.make_params([]).values()
        else:
            order, *amounts = theirs.get_params(*ranges)
        return [*order.tolist(), *(0.0 if amount is None else amount for amount in amounts)]

    only_saturates = all(each is None for each in (theirs.brightness, theirs.contrast, theirs.hue))
    return _adjusting(ColorJitter(*ranges), draw, keeps_info=only_saturates)


def _gaussian_blur(theirs: Any) -> ImageStep:
    low, high = theirs.sigma

    def draw() -> Sequence[float]:
        return [theirs.make_params([])["sigma"][0] if is_v2(theirs) else theirs.get_params(low, high)]

    adjust = _adjusting(GaussianBlur(theirs.kernel_size, theirs.sigma), draw)

    def blur(image: PIL.Image.Image) -> PIL.Image.Image:
        # torchvision mirrors the edges, and raises an error if the image is too small for that.
        fits = all(side // 2 < length for side, length in zip(theirs.kernel_size, image.size, strict=True))
        return (adjust if fits else theirs)(image)

    return blur


_ADJUSTMENTS: dict[str, Callable[[Any], ImageStep]] = {
    "ColorJitter": _color_jitter,
    "GaussianBlur": _gaussian_blur,
    "Grayscale": lambda theirs: _adjusting(
        Grayscale(theirs.num_output_channels), list, keeps_info=theirs.num_output_channels == 1
    ),
    "RandomGrayscale": lambda theirs: _by_chance(theirs, Grayscale(3), keeps_info=False),
    "RandomAdjustSharpness": lambda theirs: _by_chance(
        theirs, RandomAdjustSharpness(theirs.sharpness_factor)
    ),
    "RandomAutocontrast": lambda theirs: _by_chance(theirs, RandomAutocontrast()),
    "RandomEqualize": lambda theirs: _by_chance(theirs, RandomEqualize()),
    "RandomInvert": lambda theirs: _by_chance(theirs, RandomInvert()),
    "RandomPosterize": lambda theirs: _by_chance(theirs, RandomPosterize(theirs.bits)),
    "RandomSolarize": lambda theirs: _by_chance(theirs, RandomSolarize(theirs.threshold)),
}


def _to_dtype(theirs: Any) -> Rescaling | None:
    scale = getattr(theirs, "scale", True)
    return ToDtype(theirs.dtype, scale) if isinstance(theirs.dtype, torch.dtype) else None


_RESCALINGS: dict[str, Callable[[Any], Rescaling | None]] = {
    "ConvertImageDtype": _to_dtype,
    "Normalize": lambda theirs: Normalize(theirs.mean, theirs.std),
    "ToDtype": _to_dtype,
    "ToTensor": lambda theirs: ToTensor(),
}
