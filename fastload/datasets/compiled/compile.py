"""`fastload.compile`: faster versions of datasets that use torchvision's transforms."""

from __future__ import annotations

from typing import Any

from torch.utils.data import ConcatDataset, Subset

from fastload.datasets.cache.options import Cache
from fastload.datasets.compiled._attributes import with_compiled_attributes
from fastload.datasets.compiled._dataset import CompiledDataset, SkippingDataset
from fastload.datasets.compiled._explain import Explained, described
from fastload.datasets.compiled._parts import CompiledConcat, CompiledSubset, leaves
from fastload.datasets.compiled._recognized import compiled_function, images_of, is_huggingface
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


def _compiled(dataset: object, outer: tuple[object, ...]) -> object:
    """Compile a dataset, unless it is one of the `outer` datasets that contain it: there may be a cycle."""
    if isinstance(dataset, Explained) or any(dataset is each for each in outer):
        return dataset
    outer = (*outer, dataset)
    if type(dataset) is Subset:
        inner = _compiled(dataset.dataset, outer)
        return CompiledSubset(dataset, inner) if _is_compiled(inner) else dataset
    if type(dataset) is ConcatDataset:
        parts = [_compiled(part, outer) for part in dataset.datasets]
        return CompiledConcat(dataset, parts) if any(map(_is_compiled, parts)) else dataset
    if is_huggingface(dataset):
        from fastload.datasets.compiled._huggingface import with_lazy_images  # it needs the package

        return dataset if _is_compiled(dataset) else with_lazy_images(dataset)
    images = images_of(dataset)
    if images is not None:
        is_timms = type(dataset).__module__.startswith("timm.")
        return (SkippingDataset if is_timms else CompiledDataset)(dataset, images)
    if isinstance(dataset, ImageDataset):
        return dataset
    return with_compiled_attributes(dataset, lambda inner, late: _compiled_inner(inner, late, outer), compile)


def _is_compiled(dataset: object) -> bool:
    has_function = is_huggingface(dataset) and compiled_function(dataset) is not None
    return has_function or isinstance(dataset, Explained)


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


def explain(dataset: object) -> str:
    """Return a description of `fastload.compile(dataset)`: what is made faster, and what is left and why.

    Args:
        dataset: A dataset, compiled or not.

    Returns:
        Lines with the name of each dataset and, indented, how each step of its transform is done, and how
        close its pixels are to those of the original transform.
    """
    return "\n".join(described(compile(dataset)))
