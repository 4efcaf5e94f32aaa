"""`fastload.compile`: faster versions of datasets that use torchvision's transforms."""

from __future__ import annotations

import copy
import functools
from typing import Any

from torch.utils.data import ConcatDataset, Dataset, Subset

from fastload.datasets.cache.options import Cache
from fastload.datasets.compiled.dataset import (
    CompiledConcat,
    CompiledDataset,
    CompiledSubset,
    SkippingDataset,
    leaves,
)
from fastload.datasets.compiled.explain import Explained, described, described_attributes
from fastload.datasets.compiled.lazy import late_loader
from fastload.datasets.compiled.pipeline import CompiledTransform
from fastload.datasets.compiled.sources import (
    compiled_function,
    images_of,
    is_huggingface,
    is_torchvisions_loader,
)
from fastload.datasets.images import ImageDataset
from fastload.datasets.within import use_cache_in


def compile(dataset: Any, *, cache: str | Cache | None = None) -> Any:  # named like torch.compile
    """Return a dataset with the same samples, made faster.

    Known datasets (ImageFolder, CIFAR, MNIST and similar ones, timm's, FolderDataset, PackedDataset; also
    inside Subset and ConcatDataset) decode only the region that the transform's crop needs, and transform
    entire batches at once. In any other dataset, the transforms among its attributes are compiled. Random
    parameters are drawn by the transforms' own functions, from the same generators in the same order.

    Args:
        dataset: A map-style dataset. It shares its attributes, such as `transform`, with the result: setting
            one in either dataset sets it in both.
        cache: Where to cache its image files, such as `"disk"`; see `PackedDataset`.

    Returns:
        A dataset of the same length; `dataset` itself if nothing in it is known.

    Raises:
        OptionError: This cache is not possible for this dataset.
    """
    compiled = _compiled(dataset, ())
    if cache is not None:
        use_cache_in(compiled, cache)
    return compiled


def _compiled(dataset: Any, outer: tuple[object, ...]) -> Any:
    """Compile a dataset, unless it is one of the `outer` datasets that contain it: there may be a cycle."""
    if _is_compiled(dataset) or any(dataset is each for each in outer):
        return dataset
    outer = (*outer, dataset)
    if type(dataset) is Subset:
        inner = _compiled(dataset.dataset, outer)
        return CompiledSubset(dataset, inner) if _is_compiled(inner) else dataset
    if type(dataset) is ConcatDataset:
        parts = [_compiled(part, outer) for part in dataset.datasets]
        return CompiledConcat(dataset, parts) if any(map(_is_compiled, parts)) else dataset
    if is_huggingface(dataset):
        from fastload.datasets.compiled.huggingface import with_lazy_images  # it needs the package

        return with_lazy_images(dataset)
    images = images_of(dataset)
    if images is not None:
        is_timms = type(dataset).__module__.startswith("timm.")
        return (SkippingDataset if is_timms else CompiledDataset)(dataset, images)
    return dataset if isinstance(dataset, ImageDataset) else _with_compiled_attributes(dataset, outer)


def _is_compiled(dataset: object) -> bool:
    return isinstance(dataset, Explained) or compiled_function(dataset) is not None


def _compiled_inner(dataset: object, may_decode_late: bool, outer: tuple[object, ...]) -> object:
    """Compile a dataset that an outer dataset reads, if that makes the outer one faster."""
    result = _compiled(dataset, outer)
    given = list(leaves(dataset))
    for part in leaves(result):
        if isinstance(part, CompiledDataset) and not any(part is each for each in given):
            if not (may_decode_late or part.compiled_transform.is_useful):
                return dataset
            part.decodes_late = may_decode_late
    return result


def _with_compiled_attributes(dataset: Any, outer: tuple[object, ...]) -> Any:
    """Return a version of a dataset with compiled attributes; the dataset itself if none can be compiled.

    Its class is a subclass of the original one, with a property for each compiled attribute. All other
    attributes are shared: setting one in either dataset sets it in both. Samples are still made by the
    dataset's own `__getitem__`.
    """
    attributes: dict[str, Any] = dict(getattr(dataset, "__dict__", {}))
    compiled: dict[str, object] = {}
    for name, value in attributes.items():
        if callable(value) and not isinstance(value, (CompiledTransform, Dataset)):
            transform = CompiledTransform(value)
            if transform.is_useful:
                compiled[name] = transform
    has_transforms = bool(compiled)
    for name, value in attributes.items():
        if isinstance(value, Dataset):
            inner = _compiled_inner(value, has_transforms, outer)  # a transform gets its images
            if inner is not value:
                compiled[name] = inner
        elif has_transforms and is_torchvisions_loader(value):
            compiled[name] = functools.partial(late_loader, value)
    if not compiled:
        return dataset
    both = attributes.get("transforms")
    if (
        both is not None
        and type(both).__name__ == "StandardTransform"
        and both.transform is attributes.get("transform")
    ):
        # The pair of transform and target_transform of VisionDataset, which some of its subclasses call.
        both = copy.copy(both)
        both.transform = compiled.get("transform", both.transform)
        compiled["transforms"] = both
    members: dict[str, object] = {
        name: _Compiled(name, attributes[name], value) for name, value in compiled.items()
    }
    kind = type(dataset)
    members |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    try:
        return _sharing(type(kind.__name__, (kind, _SharingDataset), members), dataset)
    except Exception:
        return dataset  # its class cannot have such a subclass, or forbids it


def _sharing(kind: type, dataset: object) -> object:
    """Return an instance of a class that shares the `__dict__` of a dataset."""
    result: object = object.__new__(kind)
    result.__dict__ = dataset.__dict__
    return result


class _SharingDataset(Explained):
    """A dataset that shares its attributes with the original one."""

    def explained_parts(self) -> list[str]:
        members = {
            name: each.compiled for name, each in vars(type(self)).items() if isinstance(each, _Compiled)
        }
        shown = CompiledTransform, Dataset
        decodes_itself = not any(isinstance(each, (functools.partial, Dataset)) for each in members.values())
        parts = {name: each for name, each in members.items() if isinstance(each, shown)}
        return described_attributes(parts, decodes_itself)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        # The same attributes are found again after a copy or a pickle.
        return compile, (_sharing(type(self).__mro__[1], self),)

    def __copy__(self) -> object:
        return compile(copy.copy(_sharing(type(self).__mro__[1], self)))


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


def explain(dataset: object) -> str:
    """Return a description of `fastload.compile(dataset)`: what is made faster, and what is left and why.

    Args:
        dataset: A dataset, compiled or not.

    Returns:
        Lines with the name of each dataset and, indented, how each step of its transform is done, and how
        close its pixels are to those of the original transform.
    """
    return "\n".join(described(compile(dataset)))
