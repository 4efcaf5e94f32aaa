"""Description of a compiled dataset: how each step of its transform is carried out, and what is unchanged."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

from torch.utils.data import ConcatDataset, Subset

from fastload.datasets.compiled.pipeline import CompiledCode, CompiledTransform, is_alone
from fastload.datasets.compiled.sources import compiled_function, why_left
from fastload.datasets.compiled.steps import StepKind
from fastload.datasets.folder import FilesDataset
from fastload.datasets.images import ImageDataset
from fastload.images.region import find_turbojpeg
from fastload.system.units import aligned

_WHILE_DECODING = "while decoding, of the region that is needed"
_ONCE = "once for a batch"
_HOW: dict[StepKind, str] = {
    "region": _WHILE_DECODING,
    "pixels": "by OpenCV",
    "conversion": "at the end",
    "rescale": _ONCE,
    "erase": _ONCE,
}
_OF_AN_IMAGE: dict[StepKind, str] = {**_HOW, "rescale": "at the end", "erase": "at the end"}
_OF_A_DECODED_IMAGE: dict[StepKind, str] = {**_OF_AN_IMAGE, "region": "in one step, of the decoded image"}
LATE = "images: decoded when their pixels are asked for"
_LEFT = "left as it is, called with one image at a time"
_IN_WORKERS = "in workers only, as other threads of this process may use them: "

# The ratio of the times of "FolderDataset" with and without the library, in benchmarks/results/load.json.
_TURBOJPEG = (
    "TurboJPEG is not installed: with it, random crops of JPEG files load about 1.2 times as fast (see the "
    'page "Installing")'
)


class Explained:
    """Base class of compiled datasets, which describe themselves."""

    def explain(self) -> str:
        """See `fastload.explain`."""
        return explanation(self)

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
    how = _OF_A_DECODED_IMAGE if decodes_itself else _OF_AN_IMAGE
    lines = []
    for name, part in parts.items():
        known = _steps(part, how) if isinstance(part, CompiledTransform) else described(part)
        lines += [f"{name}:", *_indented(known)]
    return lines


def described_code(code: CompiledCode, decodes_itself: bool) -> list[str]:
    """Return the lines that describe what a dataset's own code uses while it makes samples."""
    lines = [LATE] * code.opens_images + described_attributes(code.compiled, decodes_itself)
    return [_IN_WORKERS + _other_threads(), *lines] if lines and not is_alone() else lines


def _other_threads() -> str:
    kinds = [type(each) for each in threading.enumerate() if each is not threading.current_thread()]
    names = dict.fromkeys(f"{kind.__module__}.{kind.__name__}" for kind in kinds)
    return ", ".join(names)


def description_of(transform: CompiledTransform, images: ImageDataset | None) -> list[str]:
    """Return one line for each step of a transform: how it is done, and how close its pixels are."""
    if images is None:
        return ["left as it is: it makes its samples itself"]
    how = _HOW
    if images.lies_in_memory:
        how = {**_HOW, "region": "in one step" if transform.vector is None else _ONCE}
    elif not isinstance(images, FilesDataset):
        how = {**_HOW, "region": "while reading, of the region that is needed"}
    return _steps(transform, how)


def _steps(transform: CompiledTransform, how: Mapping[StepKind, str]) -> list[str]:
    lines: list[str] = []
    rows: list[tuple[str, str, str]] = []
    left = ""
    for step, kind, code in transform.kinds():
        name = getattr(step.theirs, "__name__", type(step.theirs).__name__)
        is_close = step.closeness.levels <= transform.most_levels
        if code is not None:
            decodes_itself = how["region"] != _WHILE_DECODING
            inner = described_attributes(code.compiled, decodes_itself)
            lines += [*aligned(rows), f"{name}:", *_indented(inner)]
            rows, left = [], name
        elif kind != "unknown":
            text = step.closeness.text if is_close else "equal: with PIL's own filter"
            rows.append((name, how[kind], text))
        elif left:
            rows.append((name, _LEFT, f"comes after {left}"))
        else:
            left = name
            why = "would differ here" if is_close else "would differ by more than two levels"
            rows.append((name, _LEFT, "not known" if step.kind == "unknown" else why))
    return [*lines, *aligned(rows)] if rows else lines


def explanation(dataset: object) -> str:
    """Return the lines that describe a dataset, and what would make it faster still."""
    lines = described(dataset)
    return "\n".join([*lines, *_faster_still(lines)])


def _faster_still(lines: list[str]) -> list[str]:
    has_crops = any(_WHILE_DECODING in line and "Crop" in line for line in lines)
    return [_TURBOJPEG] if has_crops and find_turbojpeg() is None else []


def summary(dataset: object, num_workers: int) -> tuple[bool, str]:
    """Return True if a compiled dataset makes samples faster here, and its steps and the others in a line."""
    faster: list[str] = []
    waiting: list[str] = []
    left: list[str] = []
    lines, why, waiting_from = described(dataset), "", math.inf
    for line in lines:
        text = line.lstrip()
        indent = len(line) - len(text)
        if indent < waiting_from:
            waiting_from = math.inf
        if text.startswith(_IN_WORKERS) and not num_workers:
            why, waiting_from = text, indent
        name, *how = text.split("  ")
        names = left if _LEFT in line else faster if waiting_from == math.inf else waiting
        if how and name not in names:
            names.append(name)
    is_active = bool(faster) or not why
    parts = [", ".join(faster or ["the decoding of images"])] if is_active else []
    if why:
        parts.append(", ".join(waiting or ["the decoding of images"]) + f": {why}")
    if left:
        parts.append(f"left: {', '.join(left)}")
    return is_active, "; ".join([*parts, *_faster_still(lines)])


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
