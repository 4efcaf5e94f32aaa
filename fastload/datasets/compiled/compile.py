"""`fastload.compile`: the dataset that somebody has, made faster."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from fastload.datasets.compiled._dataset import CompiledDataset
from fastload.datasets.compiled._pipeline import CompiledTransform
from fastload.datasets.compiled._sources import Arrays, ListedFiles
from fastload.datasets.images import ImageDataset
from fastload.transforms.compose import package_of


def compile(dataset: Any) -> Any:  # named like torch.compile
    """Return a dataset with the same samples, made faster.

    Known datasets (ImageFolder, CIFAR, MNIST and their like, FolderDataset, PackedDataset; also within
    Subset and ConcatDataset) decode only the region that the transform's crop needs, and are transformed
    batch by batch. Of any other dataset that has a `transform`, that one is compiled. Random parameters are
    drawn by the transforms' own functions, from the same generators in the same order.

    Args:
        dataset: A map-style dataset. It is not changed.

    Returns:
        A dataset of the same length; `dataset` itself if nothing in it is known.
    """
    if isinstance(dataset, CompiledDataset):
        return dataset
    if type(dataset) is Subset:
        part = compile(dataset.dataset)
        return dataset if part is dataset.dataset else Subset(part, dataset.indices)
    if type(dataset) is ConcatDataset:
        parts = [compile(part) for part in dataset.datasets]
        is_same = all(part is given for part, given in zip(parts, dataset.datasets, strict=True))
        return dataset if is_same else ConcatDataset(parts)
    if isinstance(dataset, ImageDataset):
        return CompiledDataset(copy.copy(dataset), dataset) if _gives_pil_images(dataset) else dataset
    images = _images_of(dataset)
    if images is not None:
        return CompiledDataset(copy.copy(dataset), images)
    return _with_compiled_transform(dataset)


def _gives_pil_images(dataset: ImageDataset) -> bool:
    """Return True if the transform of a dataset of fastload's gets PIL images, and every sample its own."""
    transform = dataset.transform
    return (
        transform is not None and package_of(transform) == "torchvision" and not dataset.substitutes_samples
    )


def _images_of(dataset: Any) -> ImageDataset | None:
    """Return the images of a dataset that is known; None for any other."""
    if "torchvision" not in {kind.__module__.partition(".")[0] for kind in type(dataset).__mro__}:
        return None
    import torchvision
    from torchvision import datasets

    reads = type(dataset).__getitem__
    if reads is datasets.DatasetFolder.__getitem__:
        loaders = datasets.folder.default_loader, datasets.folder.pil_loader
        is_pil = torchvision.get_image_backend() == "PIL"
        return ListedFiles(dataset.samples, dataset.loader) if is_pil and dataset.loader in loaders else None
    if reads in (datasets.CIFAR10.__getitem__, datasets.MNIST.__getitem__):
        return _arrays(dataset.data, dataset.targets)
    if reads in (datasets.SVHN.__getitem__, datasets.STL10.__getitem__) and dataset.labels is not None:
        return _arrays(np.ascontiguousarray(dataset.data.transpose(0, 2, 3, 1)), dataset.labels)
    return None


def _arrays(data: Any, targets: Any) -> Arrays | None:
    pixels = np.asarray(data)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        return None
    return Arrays(pixels, np.asarray(targets))


def _with_compiled_transform(dataset: Any) -> Any:
    """Return a copy of a dataset whose transform is compiled; itself if that has no known step."""
    transform = getattr(dataset, "transform", None)
    if transform is None or isinstance(transform, CompiledTransform):
        return dataset
    compiled = CompiledTransform(transform)
    if all(step.kind == "unknown" for step in compiled.steps):
        return dataset
    result = copy.copy(dataset)
    result.transform = compiled
    both: Any = getattr(result, "transforms", None)
    if type(both).__name__ == "StandardTransform" and both.transform is transform:
        # VisionDataset's pair of transform and target_transform, which some of its subclasses call.
        result.transforms = copy.copy(both)
        result.transforms.transform = compiled
    return result
