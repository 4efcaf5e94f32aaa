"""The dataset that a loader's samples come from: the user's, or its faster counterpart."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from typing import Any

from fastload.images.opencv import has_opencv
from fastload.loader.measurements import PlannedValue

# Without one of these in use, a dataset has nothing that could be compiled, and nothing is imported.
_MOST_PARTS = 64  # of a list, such as the datasets of a ConcatDataset, that are looked at one by one
_LIBRARIES = ("torchvision", "timm", "datasets")


class Compiling:
    """The compilation of a loader's dataset, as the loader's parameter `compile` asks for.

    Attributes:
        source: The faster counterpart of the dataset, or the dataset itself.
    """

    def __init__(self, dataset: Any, is_asked: bool | None) -> None:
        self._dataset = dataset
        self._is_asked = is_asked
        self._attributes: dict[str, object] | None = None
        self.source: Any = dataset
        self.refresh()

    def refresh(self) -> None:
        """Compile the dataset, again if an attribute of the user's dataset has been set to another object."""
        if self._is_asked is False or not (self._is_asked or _is_possible()):
            return
        attributes = {
            name: _identity(value) for name, value in getattr(self._dataset, "__dict__", {}).items()
        }
        if attributes == self._attributes:
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


def _identity(value: object) -> object:
    """Return an identity that changes when an attribute, or one of several datasets, is replaced."""
    return tuple(map(id, value)) if type(value) is list and len(value) <= _MOST_PARTS else id(value)


def _is_possible() -> bool:
    """Return True if a library that can be compiled is in use, and those that compiling needs are there."""
    is_used = any(name in sys.modules for name in _LIBRARIES)
    return is_used and find_spec("PIL") is not None and has_opencv()
