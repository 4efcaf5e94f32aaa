"""Description of a compiled transform, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastload.datasets.compiled._pipeline import CompiledTransform

# How each kind of step is done, and how close its pixels are to those of the transform itself, in levels of
# 255: the bounds that tests/datasets/compiled/pipelines.py asserts for noise. Photos are closer.
_HOW = {
    "region": "while decoding, of the region that is needed",
    "pixels": "by OpenCV",
    "conversion": "at the end",
    "rescale": "once for a batch",
    "erase": "once for a batch",
    "unknown": "left as it is, called with one image at a time",
}
_CLOSENESS = {
    "Resize": "within two levels if bilinear",
    "RandomResizedCrop": "within two levels if bilinear",
    "RandomResize": "within two levels if bilinear",
    "RandomShortestSize": "within two levels if bilinear",
    "ScaleJitter": "within two levels if bilinear",
    "ColorJitter": "within a level; hue of PIL images by more",
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


def explanation(transform: CompiledTransform) -> str:
    """Return one line for each step: how it is done, and how close its pixels are."""
    rows = list(_rows(transform))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _rows(transform: CompiledTransform) -> Iterator[tuple[str, str, str]]:
    for step, kind in transform.kinds():
        name = type(step.theirs).__name__
        name = getattr(step.theirs, "__name__", name)
        closeness = "" if kind == "unknown" else _CLOSENESS.get(step.name, "equal")
        yield name, _HOW[kind], closeness
