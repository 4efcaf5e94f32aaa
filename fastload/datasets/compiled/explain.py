"""Description of a compiled dataset: how each step of its transform is carried out, and what is unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    if isinstance(dataset, ConcatDataset):
        return ["ConcatDataset", *_indented([line for part in dataset.datasets for line in described(part)])]
    function = compiled_function(dataset)
    if isinstance(dataset, Explained) and (lines := dataset.explained_parts()):
        return [name, *_indented(lines)]
    if function is not None:
        return [name, *_indented([LATE, *described_attributes(function.transforms)])]
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
    return aligned(_rows(transform, gets_images))


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _rows(transform: CompiledTransform, gets_images: bool) -> Iterator[tuple[str, str, str]]:
    left = ""
    for step, kind in transform.kinds():
        name = getattr(step.theirs, "__name__", type(step.theirs).__name__)
        if kind != "unknown":
            how = _OF_AN_IMAGE if gets_images and kind == "region" else _HOW[kind]
            yield name, how, step.closeness
        elif left:
            yield name, _LEFT, f"comes after {left}"
        else:
            left = name
            yield name, _LEFT, "not known" if step.kind == "unknown" else "would differ here"
