"""`fastload.compile`: faster versions of datasets that use torchvision's transforms."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Sequence
from typing import Any

from torch.utils.data import ConcatDataset, Dataset, IterableDataset, MapDataPipe, Subset

from fastload.contracts import FillsBatches, implements
from fastload.datasets.cache.options import Cache
from fastload.datasets.compiled.dataset import (
    CompiledConcat,
    CompiledDataset,
    CompiledSubset,
    Counterpart,
    SkippingDataset,
    leaves,
)
from fastload.datasets.compiled.explain import Explained, described_code, explanation
from fastload.datasets.compiled.lazy import plain_afterwards
from fastload.datasets.compiled.pipeline import CompiledCode
from fastload.datasets.compiled.sources import compiled_function, images_of, is_huggingface
from fastload.datasets.images import ImageDataset
from fastload.datasets.within import use_cache_in
from fastload.transforms.draws import current_draws

CLOSE_LEVELS = 2.0
"""Steps whose pixels differ by at most so many levels of 255 are compiled unless the user says otherwise."""


def compile(dataset: Any, *, cache: str | Cache | None = None) -> Any:  # named like torch.compile
    """Return a dataset with the same samples, made faster.

    Known datasets (ImageFolder, CIFAR, MNIST and similar ones, timm's, FolderDataset, PackedDataset; also
    inside Subset and ConcatDataset) decode only the region that the transform's crop needs, and transform
    entire batches at once. Any other dataset makes its samples itself, with compiled versions of the
    transforms that its code uses. Random parameters are drawn by the transforms' own functions, from the same
    generators in the same order.

    fastload's DataLoader does this itself, but leaves steps whose pixels may differ by more than two levels
    of 255 as they are; here, everything known is compiled.

    Args:
        dataset: A map-style dataset. It shares its attributes, such as `transform`, with the result: setting
            one in either dataset sets it in both.
        cache: Where to cache its image files, such as `"disk"`; see `PackedDataset`.

    Returns:
        A dataset of the same length, for which `isinstance` answers as for `dataset`; `dataset` itself if
        nothing in it is known.

    Raises:
        OptionError: This cache is not possible for this dataset.
    """
    compiled = compiled_within(dataset)
    if cache is not None:
        use_cache_in(compiled, cache)
    return compiled


def compiled_within(dataset: Any, most_levels: float = math.inf, outer: tuple[object, ...] = ()) -> Any:
    """Return `compile(dataset)` with only those steps whose pixels differ by at most `most_levels`.

    A dataset is left if it is one of the `outer` datasets that contain it: there may be a cycle.
    """
    if _is_compiled(dataset) or any(dataset is each for each in outer):
        return dataset
    outer = (*outer, dataset)
    if type(dataset) is Subset:
        inner = compiled_within(dataset.dataset, most_levels, outer)
        return CompiledSubset(dataset, inner) if _is_compiled(inner) else dataset
    if type(dataset) is ConcatDataset:
        parts = [compiled_within(part, most_levels, outer) for part in dataset.datasets]
        return CompiledConcat(dataset, parts) if any(map(_is_compiled, parts)) else dataset
    if is_huggingface(dataset):
        from fastload.datasets.compiled.huggingface import with_lazy_images  # it needs the package

        return with_lazy_images(dataset, most_levels)
    images = images_of(dataset)
    if images is not None:
        is_timms = type(dataset).__module__.startswith("timm.")
        return (SkippingDataset if is_timms else CompiledDataset)(dataset, images, most_levels)
    makes_batches = implements(dataset, FillsBatches.fetch_into)
    if makes_batches or isinstance(dataset, (ImageDataset, IterableDataset, MapDataPipe, list, dict)):
        return dataset
    result = CompiledSamples(dataset, most_levels, outer)
    return result if result.explained_parts() else dataset


def recompiled(compiled: Any, dataset: Any, most_levels: float) -> Any:
    """Return the counterpart of a dataset whose attributes have changed since `compiled` was made of it.

    Compiled images notice changes themselves, and know the sizes of those that they have read. Nothing is
    compiled that is not made faster.
    """
    if isinstance(compiled, CompiledDataset):
        return compiled
    result = compiled_within(dataset, most_levels)
    return result if most_levels > CLOSE_LEVELS or _is_faster(result, sys.maxsize) else dataset


def _is_faster(dataset: Any, count: int) -> bool:
    """Return True if batches of `count` samples take less time than those of the original dataset."""
    if isinstance(dataset, CompiledDataset):
        is_useful = dataset.images is not None and dataset.compiled_transform.is_useful
        return is_useful and dataset.is_faster_for(count)
    if issubclass(type(dataset), CompiledSubset):
        return _is_faster(dataset.dataset, count)
    if issubclass(type(dataset), CompiledConcat):
        count = count if dataset.common() is not None else 1
        return any(_is_faster(part, count) for part in dataset.datasets)
    return _is_compiled(dataset)


def _is_compiled(dataset: object) -> bool:
    return isinstance(dataset, Explained) or compiled_function(dataset) is not None


class CompiledSamples(Counterpart, Dataset[object]):
    """Dataset whose samples are made by the user's own code, with compiled versions of what it uses."""

    def __init__(self, theirs: object, most_levels: float, outer: tuple[object, ...] = ()) -> None:
        def compile_inner(dataset: object, may_decode_late: bool) -> object:
            """Compile a dataset that this one reads, if that makes this one faster."""
            # torchvision's wrapper looks at the images of the dataset inside.
            if any(each.__module__.startswith("torchvision.tv_tensors") for each in type(theirs).__mro__):
                return dataset
            result = compiled_within(dataset, most_levels, outer)
            given = list(leaves(dataset))
            for part in leaves(result):
                if isinstance(part, CompiledDataset) and not any(part is each for each in given):
                    is_used = may_decode_late or part.compiled_transform.is_useful
                    if not is_used or part.images is None or part.images.lies_in_memory:
                        return dataset
                    part.decodes_late = may_decode_late
            return result

        super().__init__(theirs, _code=CompiledCode(theirs, most_levels, (), compile_inner))

    def explained_parts(self) -> list[str]:
        code = self._code
        decodes_itself = not (
            code.opens_images or any(isinstance(part, Dataset) for part in code.compiled.values())
        )
        return described_code(code, decodes_itself)

    def __len__(self) -> int:
        return len(self.theirs)

    def __getitem__(self, index: object) -> object:
        with plain_afterwards(), self._code.running():
            return self.theirs[index]

    def __getitems__(self, indices: Sequence[object]) -> object:
        with plain_afterwards(), self._code.running():
            if getattr(self.theirs, "__getitems__", None):
                return self.theirs.__getitems__(indices)
            draws = current_draws()
            return [self.theirs[index] for index in (indices if draws is None else draws.each(indices))]

    def __copy__(self) -> CompiledSamples:
        return CompiledSamples(copy.copy(self.theirs), self._code.most_levels)

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledSamples, (self.theirs, self._code.most_levels)


def explain(dataset: object) -> str:
    """Return a description of what fastload's DataLoader makes faster in a dataset, and what is left and why.

    Args:
        dataset: A dataset, compiled or not.

    Returns:
        Lines with the name of each dataset and, indented, how each step of its transform is done, and how
        close its pixels are to those of the original transform.
    """
    return explanation(recompiled(dataset, dataset, CLOSE_LEVELS))
