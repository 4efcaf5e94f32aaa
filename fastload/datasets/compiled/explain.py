"""Description of a compiled dataset: how each step of its transform is carried out, and what is unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from torch.utils.data import ConcatDataset, Subset

from fastload.datasets.compiled.pipeline import CompiledTransform
from fastload.datasets.compiled.sources import compiled_function, why_left
from fastload.datasets.compiled.steps import StepKind
from fastload.system.units import aligned

_HOW: dict[StepKind, str] = {
    "region": "while decoding, of the region that is needed",
    "pixels": "by OpenCV",
    "conversion": "at the end",
    "rescale": "once for a batch",
    "erase": "once for a batch",
}
_OF_AN_IMAGE = "in one step, of the decoded image"
LATE = "images: decoded when their pixels are asked for"
_LEFT = "left as it is, called with one image at a time"


class Explained:
    """Base class of compiled datasets, which describe themselves."""

    def explain(self) -> str:
        """See `fastload.explain`."""
        return "\n".join(described(self))

    def explained_parts(self) -> list[str]:
        """Return the lines below the name, if they are not those of the datasets inside."""
        return []

    def __repr__(self) -> str:
        return f"compiled {self.explain()}"


def described(dataset: object) -> list[str]:
    """Return the lines that describe a dataset."""
    # Read from `__dict__`, because a property could run any code.
    attributes = getattr(dataset, "__dict__", {})
    name = type(attributes.get("theirs", dataset)).__name__
    if isinstance(dataset, Explained) and (lines := dataset.explained_parts()):
        return [name, *_indented(lines)]
    if isinstance(dataset, ConcatDataset):
        return ["ConcatDataset", *_indented([line for part in dataset.datasets for line in described(part)])]
    function = compiled_function(dataset)
    if function is not None:
        return [name, *_indented([LATE, *described_attributes(function.compiled)])]
    if isinstance(dataset, Subset) or isinstance(attributes.get("dataset"), Explained):
        first, *others = described(attributes["dataset"])
        return [f"{name} of {first}", *others]
    return [name, f"  left as it is: {why_left(dataset)}"]


def described_attributes(parts: Mapping[str, object], decodes_itself: bool = False) -> list[str]:
    """Return the lines that describe compiled transforms and datasets, given by their names.

    If a dataset `decodes_itself`, its transforms get complete images.
    """
    lines = []
    for name, part in parts.items():
        known = (
            description_of(part, decodes_itself) if isinstance(part, CompiledTransform) else described(part)
        )
        lines += [f"{name}:", *_indented(known)]
    return lines


def description_of(transform: CompiledTransform, gets_images: bool = False) -> list[str]:
    """Return one line for each step of a transform: how it is done, and how close its pixels are."""
    lines: list[str] = []
    rows: list[tuple[str, str, str]] = []
    left = ""
    for step, kind, code in transform.kinds():
        name = getattr(step.theirs, "__name__", type(step.theirs).__name__)
        is_close = step.closeness.levels <= transform.most_levels
        if code is not None:
            lines += [*aligned(rows), f"{name}:", *_indented(described_attributes(code.compiled))]
            rows, left = [], name
        elif kind != "unknown":
            how = _OF_AN_IMAGE if gets_images and kind == "region" else _HOW[kind]
            rows.append((name, how, step.closeness.text if is_close else "equal: with PIL's own filter"))
        elif left:
            rows.append((name, _LEFT, f"comes after {left}"))
        else:
            left = name
            why = "would differ here" if is_close else "would differ by more than two levels"
            rows.append((name, _LEFT, "not known" if step.kind == "unknown" else why))
    return [*lines, *aligned(rows)] if rows else lines


def summary(dataset: object) -> str:
    """Return in one line the steps of a compiled dataset that are made faster, and those that are left."""
    faster: list[str] = []
    left: list[str] = []
    for line in described(dataset):
        name, *_ = line.strip().split("  ")
        names = left if _LEFT in line else faster
        if "  " in line.strip() and name not in names:
            names.append(name)
    return ", ".join(faster or ["the decoding of images"]) + f"; left: {', '.join(left)}" * bool(left)


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
