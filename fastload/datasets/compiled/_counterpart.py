"""Base class of compiled datasets that stand in for one other dataset."""

from __future__ import annotations

import copy
from typing import Any

from fastload.datasets.compiled._explain import Explained


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
