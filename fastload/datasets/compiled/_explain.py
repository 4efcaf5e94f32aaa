"""Description of a compiled dataset: how each step of its transform is carried out, and what is unchanged."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import ConcatDataset, Dataset

from fastload.datasets.compiled._pipeline import CompiledTransform
from fastload.datasets.compiled._recognized import compiled_function, is_huggingface, why_left
from fastload.system.units import aligned

# The way in which each kind of step is carried out, and the greatest difference from the original transform's
# pixels, in levels of 255: the bounds that tests/datasets/compiled/pipelines.py asserts for noise. Photos are
# closer.
_HOW = {
    "region": "while decoding, of the region that is needed",
    "pixels": "by OpenCV",
    "conversion": "at the end",
    "rescale": "once for a batch",
    "erase": "once for a batch",
}
LATE = "images: decoded when their pixels are asked for"
_LEFT = "left as it is, called with one image at a time"
_RESIZES = (
    *("Resize", "RandomResizedCrop", "RandomResize", "RandomShortestSize", "ScaleJitter"),
    *("RandomResizedCropAndInterpolation", "ResizeKeepRatio"),
)
_ADJUSTMENTS = "GaussianBlur", "Grayscale", "RandomGrayscale", "RandomAdjustSharpness", "RandomAutocontrast"
_CLOSENESS = {
    **dict.fromkeys(_RESIZES, "within two levels if bilinear"),
    "ColorJitter": "within a level for each kind of change; hue of PIL images by more",
    **dict.fromkeys(_ADJUSTMENTS, "within a level"),
    **dict.fromkeys(("Normalize", "ToTensor", "ConvertImageDtype", "ToDtype"), "within rounding"),
}


class Explained:
    """Base class of compiled datasets, which describe themselves."""

    def explain(self) -> str:
        """See `fastload.explain`."""
        return "\n".join(described(self))

    def explained_name(self) -> str:
        """Return the name of the original dataset's class."""
        return type(self).__name__

    def explained_parts(self, outer: tuple[object, ...]) -> list[str]:
        """Return the lines below the name, if they are not those of the datasets inside."""
        return []

    def __repr__(self) -> str:
        return f"compiled {self.explain()}"


class Counterpart(Explained):
    """Base class of compiled datasets that share the attributes of the original dataset, `theirs`.

    All attributes but their own, such as `classes`, are those of the original; they can be set in either.
    """

    def __init__(self, theirs: Any, **own: object) -> None:
        self.__dict__.update(own, theirs=theirs)

    def explained_name(self) -> str:
        return type(self.theirs).__name__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "theirs":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    def __setattr__(self, name: str, value: object) -> None:
        is_only_ours = hasattr(type(self), name) and not hasattr(self.theirs, name)
        if name in self.__dict__ or is_only_ours:
            super().__setattr__(name, value)
        else:
            setattr(self.theirs, name, value)

    def __copy__(self) -> Counterpart:
        result = object.__new__(type(self))
        result.__dict__.update(self.__dict__, theirs=copy.copy(self.theirs))
        return result


def described(dataset: object, outer: tuple[object, ...] = ()) -> list[str]:
    """Return the lines that describe a dataset; `outer` are the datasets that contain it."""
    if isinstance(dataset, Explained):
        name, lines = dataset.explained_name(), dataset.explained_parts(outer)
    else:
        name, lines = type(dataset).__name__, _of_function(dataset)
    if isinstance(dataset, ConcatDataset):
        parts = (described(part, (*outer, dataset)) for part in dataset.datasets)
        return ["ConcatDataset", *indented([line for lines in parts for line in lines])]
    if lines:
        return [name, *indented(lines)]
    # Read from `__dict__`, because a property could run any code.
    inner = getattr(dataset, "__dict__", {}).get("dataset")
    if isinstance(inner, Dataset) and not any(inner is each for each in (*outer, dataset)):
        first, *others = described(inner, (*outer, dataset))
        return [f"{name} of {first}", *others]
    return [name, f"  left as it is: {why_left(dataset)}"]


def described_attributes(parts: Mapping[str, object], outer: tuple[object, ...] = ()) -> list[str]:
    """Return the lines that describe compiled transforms and datasets, given by their names."""
    lines = []
    for name, part in parts.items():
        if not any(part is each for each in outer):
            known = description_of(part) if isinstance(part, CompiledTransform) else described(part, outer)
            lines += [f"{name}:", *indented(known)]
    return lines


def _of_function(dataset: object) -> list[str]:
    function = compiled_function(dataset) if is_huggingface(dataset) else None
    return [] if function is None else [LATE, *described_attributes(function.transforms)]


def description_of(transform: CompiledTransform) -> list[str]:
    """Return one line for each step of a transform: how it is done, and how close its pixels are."""
    return aligned(_rows(transform))


def indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _rows(transform: CompiledTransform) -> Iterator[tuple[str, str, str]]:
    left = ""
    for step, kind in transform.kinds():
        name = getattr(step.theirs, "__name__", type(step.theirs).__name__)
        if kind != "unknown":
            yield name, _HOW[kind], _CLOSENESS.get(step.name, "equal")
        elif left:
            yield name, _LEFT, f"comes after {left}"
        else:
            left = name
            yield name, _LEFT, "not known" if step.kind == "unknown" else "would differ here"
