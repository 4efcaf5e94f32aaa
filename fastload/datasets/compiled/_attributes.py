"""Datasets of any class with compiled attributes: transforms, torchvision's image loader, inner datasets.

Samples are still made by the dataset's own `__getitem__`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import PIL.Image
from torch.utils.data import Dataset

from fastload.datasets.compiled._encoded import lazily_decoded
from fastload.datasets.compiled._explain import Explained, described_attributes
from fastload.datasets.compiled._pipeline import CompiledTransform
from fastload.datasets.compiled._recognized import is_torchvisions_loader


def with_compiled_attributes(
    dataset: object,
    compile_inner: Callable[[Dataset[object], bool], object],
    recompile: Callable[[object], object],
) -> object:
    """Return a version of a dataset with compiled attributes; the dataset itself if none can be compiled.

    Its class is a subclass of the original one, with a property for each compiled attribute. All other
    attributes are shared: setting one in either dataset sets it in both. `compile_inner` compiles a dataset
    among the attributes; its second argument is True if images may be decoded late, because a compiled
    transform receives them. `recompile` is called with a copy of the dataset to make a copy of the result.
    """
    attributes = dict(getattr(dataset, "__dict__", {}))
    compiled: dict[str, object] = {}
    for name, value in attributes.items():
        if callable(value) and not isinstance(value, (CompiledTransform, Dataset)):
            transform = CompiledTransform(value)
            if transform.is_useful:
                compiled[name] = transform
    has_transforms = bool(compiled)
    for name, value in attributes.items():
        if isinstance(value, Dataset):
            inner = compile_inner(value, has_transforms)
            if inner is not value:
                compiled[name] = inner
        elif has_transforms and is_torchvisions_loader(value):
            compiled[name] = functools.partial(_load_late, value)
    if not compiled:
        return dataset
    both: Any = attributes.get("transforms")
    if type(both).__name__ == "StandardTransform" and both.transform is attributes.get("transform"):
        # The pair of transform and target_transform of VisionDataset, which some of its subclasses call.
        compiled["transforms"] = pair = copy.copy(both)
        pair.transform = compiled.get("transform", both.transform)
    members: dict[str, object] = {
        name: _Compiled(name, attributes[name], value) for name, value in compiled.items()
    }
    kind = type(dataset)
    members |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    members["_recompile"] = staticmethod(recompile)
    try:
        return _sharing(type(kind.__name__, (kind, SharingDataset), members), dataset)
    except Exception:
        return dataset  # its class cannot have such a subclass, or forbids it


def _sharing(kind: type, dataset: object) -> object:
    """Return an instance of a class that shares the `__dict__` of a dataset."""
    result: object = object.__new__(kind)
    result.__dict__ = dataset.__dict__
    return result


class SharingDataset(Explained):
    """A dataset that shares its attributes with the original one."""

    # `fastload.compile`, which finds the same attributes again after a copy or a pickle.
    _recompile: ClassVar[Callable[[object], object]]

    def explained_parts(self, outer: tuple[object, ...]) -> list[str]:
        members = {name: each for name, each in vars(type(self)).items() if isinstance(each, _Compiled)}
        kinds = CompiledTransform, Dataset
        found = {name: each.compiled for name, each in members.items() if isinstance(each.compiled, kinds)}
        return described_attributes(found, (*outer, self))

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[[object], object], tuple[object]]:
        return type(self)._recompile, (_sharing(type(self).__mro__[1], self),)

    def __copy__(self) -> object:
        recompile, (dataset,) = self.__reduce_ex__(2)
        return recompile(copy.copy(dataset))


class _Compiled:
    """Property that returns a compiled attribute; a transform that was replaced or changed is recompiled."""

    def __init__(self, name: str, theirs: object, compiled: object) -> None:
        self._name = name
        self._theirs = theirs
        self.compiled = compiled

    def __get__(self, dataset: object, kind: type) -> object:
        if dataset is None:
            return self
        value = vars(dataset)[self._name]
        if isinstance(self.compiled, CompiledTransform) and not self.compiled.is_of(value):
            self._theirs, self.compiled = value, CompiledTransform(value)
        return self.compiled if value is self._theirs else value

    def __set__(self, dataset: object, value: object) -> None:
        vars(dataset)[self._name] = value


def _load_late(theirs: Callable[[str], PIL.Image.Image], path: str) -> PIL.Image.Image:
    """Return the image that a loader of torchvision returns, decoded on first use."""
    return lazily_decoded(path, lambda: theirs(path))
