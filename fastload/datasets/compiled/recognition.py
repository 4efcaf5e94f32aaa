"""Recognition of the transforms of other libraries."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch

_PACKAGES = ("torchvision", "timm")

# Transforms of timm, and those of torchvision that they are equivalent to.
_TIMM_NAMES = {
    **{name: name for name in ("CenterCropOrPad", "RandomCropOrPad", "TrimBorder")},
    **{name: name for name in ("RandomResizedCropAndInterpolation", "ResizeKeepRatio")},
    "MaybePILToTensor": "PILToTensor",
    "MaybeToTensor": "ToTensor",
}


class Untyped(Protocol):
    """An object of a library that has no types."""

    def __getattr__(self, name: str, /) -> Any: ...


class Foreign(Untyped, Protocol):
    """A transform of such a library."""

    def __call__(self, *inputs: object, **options: object) -> Any: ...


def flattened(transform: Foreign | None) -> Iterator[Foreign]:
    """Yield the steps of a transform; a Compose or Sequential is replaced by its own steps."""
    if transform is None:
        return
    name = name_of(transform)
    if has_hooks(transform):
        yield transform
    elif name == "Compose" or type(transform) is torch.nn.Sequential:
        for each in transform.transforms if name == "Compose" else vars(transform)["_modules"].values():
            yield from flattened(each)
    elif name == "ImageClassification":
        yield from _preset_steps(transform)
    elif not name and (delegate := _delegate_of(transform)) is not None:
        yield from flattened(delegate)
    else:
        yield transform


def has_hooks(transform: Foreign) -> bool:
    """Return True if a call of this transform does more, or other things, than its library's class says."""
    kind = type(transform)
    if kind.__module__.partition(".")[0] in _PACKAGES:
        methods = (getattr(kind, name, None) for name in ("__call__", "forward", "transform"))
        modules = (getattr(method, "__module__", None) or "torch" for method in methods)
        if any(module.partition(".")[0] not in (*_PACKAGES, "torch") for module in modules):
            return True  # the user's code has replaced it
    if not isinstance(transform, torch.nn.Module):
        return False
    own = vars(transform)
    return "forward" in own or any(hooks for name, hooks in own.items() if name.endswith("_hooks"))


def _delegate_of(transform: Foreign) -> Foreign | None:
    """Return the callable to which `transform` passes its argument; None if it does anything else.

    The class of such a callable has a one-line `__call__`, `return self.transforms(image)`, with any names; a
    Module has such a `forward`, and no hooks.
    """
    kind = type(transform)
    call: object = kind.__call__
    inner: Mapping[str, Foreign] = {}
    if isinstance(transform, torch.nn.Module) and call is torch.nn.Module.__call__:
        if has_hooks(transform):
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


def name_of(step: object) -> str:
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
