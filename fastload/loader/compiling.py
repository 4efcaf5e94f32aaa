"""The dataset that a loader's samples come from: the user's, or its faster counterpart."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from torch.utils.data import Dataset

from fastload.images.opencv import has_opencv
from fastload.loader.measurements import PlannedValue

_MOST_PARTS = 64  # of a list, such as the datasets of a ConcatDataset, that are looked at one by one
_MOST_DEPTH = 4  # of datasets inside each other

# Without one of these in use, a dataset has nothing that could be compiled, and nothing is imported.
_LIBRARIES = ("torchvision", "timm", "datasets")


class Compiling:
    """The compilation of a loader's dataset, as the loader's parameter `compile` asks for.

    Attributes:
        source: The faster counterpart of the dataset, or the dataset itself.
    """

    def __init__(self, dataset: Any, is_asked: bool | None) -> None:
        self._dataset = dataset
        self._is_asked = is_asked
        self._attributes: list[object] | None = None
        self.source: Any = dataset
        self.refresh()

    def refresh(self) -> None:
        """Compile the dataset, again if one of its transforms or inner datasets has been replaced."""
        if self._is_asked is False or not (self._is_asked or _is_possible()):
            return
        attributes, before = list(_attributes(self._dataset)), self._attributes
        is_same = before is not None and len(attributes) == len(before)
        if is_same and all(map(operator.is_, attributes, before or ())):
            return
        from fastload.datasets.compiled.compile import CLOSE_LEVELS, recompiled

        self._attributes = attributes
        most_levels = math.inf if self._is_asked else CLOSE_LEVELS
        try:
            self.source = recompiled(self.source, self._dataset, most_levels)
        except Exception:
            if self._is_asked:  # otherwise, strange attributes of a dataset are no reason not to load it
                raise

    def choice(self, num_workers: int) -> PlannedValue[bool]:
        """Return the steps that are compiled, for the plan."""
        if self._is_asked is False:
            return PlannedValue(False, "set by you")
        if self.source is self._dataset:
            return PlannedValue(False, "nothing in the dataset would be made faster")
        from fastload.datasets.compiled.explain import summary

        return PlannedValue(*summary(self.source, num_workers))


def _attributes(dataset: object, depth: int = 0) -> Iterator[object]:
    """Yield those attributes of a dataset and of those inside it that count; of all others, the type."""
    for value in getattr(dataset, "__dict__", {}).values():
        for part in value if type(value) is list and len(value) <= _MOST_PARTS else [value]:
            yield part if callable(part) or isinstance(part, Dataset) else type(part)
            if isinstance(part, Dataset) and depth < _MOST_DEPTH:
                yield from _attributes(part, depth + 1)


def _is_possible() -> bool:
    """Return True if a library that can be compiled is in use, and those that compiling needs are there."""
    is_used = any(name in sys.modules for name in _LIBRARIES)
    return is_used and find_spec("PIL") is not None and has_opencv()
