"""Description of a compiled dataset: how each step of its transform is done, what was left and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastload.datasets.compiled._attributes import compiled_attributes
from fastload.datasets.compiled._pipeline import CompiledTransform
from fastload.datasets.compiled._recognized import compiled_function, is_huggingface, why_left

# How each kind of step is done, and how close its pixels are to those of the transform itself, in levels of
# 255: the bounds that tests/datasets/compiled/pipelines.py asserts for noise. Photos are closer.
_HOW = {
    "region": "while decoding, of the region that is needed",
    "pixels": "by OpenCV",
    "conversion": "at the end",
    "rescale": "once for a batch",
    "erase": "once for a batch",
}
_LEFT = "left as it is, called with one image at a time"
_CLOSENESS = {
    "Resize": "within two levels if bilinear",
    "RandomResizedCrop": "within two levels if bilinear",
    "RandomResize": "within two levels if bilinear",
    "RandomShortestSize": "within two levels if bilinear",
    "ScaleJitter": "within two levels if bilinear",
    "RandomResizedCropAndInterpolation": "within two levels if bilinear",
    "ResizeKeepRatio": "within two levels if bilinear",
    "ColorJitter": "within a level for each kind of change; hue of PIL images by more",
    "GaussianBlur": "within a level",
    "Grayscale": "within a level",
    "RandomGrayscale": "within a level",
    "RandomAdjustSharpness": "within a level",
    "RandomAutocontrast": "within a level",
    "Normalize": "within rounding",
    "ToTensor": "within rounding",
    "ConvertImageDtype": "within rounding",
    "ToDtype": "within rounding",
}


class Explained:
    """A compiled dataset that describes itself."""

    def explain(self) -> str:
        """Return what is done faster, what is left and why, and how close the pixels are, line by line."""
        return "\n".join(self.explanation_lines())

    def explanation_lines(self) -> list[str]:
        """Return the lines of `explain`: the name of a dataset, indented what becomes of it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"compiled {self.explain()}"


def described(dataset: Any, outer: tuple[Any, ...] = ()) -> list[str]:
    """Return the lines that describe a dataset after `fastload.compile`; `outer` are those that hold it."""
    if isinstance(dataset, Explained):
        return dataset.explanation_lines()
    lines = [type(dataset).__name__]
    for name, part in compiled_attributes(dataset).items():
        if any(part is each for each in (*outer, dataset)):
            continue
        is_transform = isinstance(part, CompiledTransform)
        inner = description_of(part) if is_transform else described(part, (*outer, dataset))
        lines += [f"  {name}:", *indented(indented(inner))]
    if is_huggingface(dataset) and (function := compiled_function(dataset)) is not None:
        lines.append("  images: decoded when their pixels are asked for")
        for name, transform in function.transforms.items():
            lines += [f"  {name}:", *indented(indented(description_of(transform)))]
    return lines if len(lines) > 1 else [*lines, f"  left as it is: {why_left(dataset)}"]


def description_of_parts(parts: list[Any]) -> list[str]:
    """Return the lines that describe the parts of a dataset; what is said of several, once."""
    counts = Counter("\n".join(described(part)) for part in parts)
    lines = []
    for text, count in counts.items():
        name, *others = text.split("\n")
        lines += [name if count == 1 else f"{count} x {name}", *others]
    return lines


def description_of(transform: CompiledTransform) -> list[str]:
    """Return one line for each step of a transform: how it is done, and how close its pixels are."""
    rows = list(_rows(transform))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip() for line in lines]


def indented(lines: list[str]) -> list[str]:
    """Return lines, moved to the right."""
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
