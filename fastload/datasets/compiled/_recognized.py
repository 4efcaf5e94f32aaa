"""Recognition of datasets whose images and targets fastload can read itself."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch.utils.data
from numpy.typing import ArrayLike

from fastload.datasets.compiled._functions import CompiledFunction
from fastload.datasets.compiled._sources import Arrays, ListedFiles
from fastload.datasets.images import ImageDataset
from fastload.transforms.compose import package_of


def images_of(dataset: object) -> ImageDataset | None:
    """Return the images of a known dataset, without its transform; None for any other dataset."""
    if isinstance(dataset, ImageDataset):
        return None if _why_left_ours(dataset) else dataset
    packages = {kind.__module__.partition(".")[0] for kind in type(dataset).__mro__}
    if "timm" in packages:
        return _of_timm(dataset)
    return _of_torchvision(dataset) if "torchvision" in packages else None


def is_huggingface(dataset: object) -> bool:
    """Return True for a map-style dataset of Hugging Face's `datasets`."""
    return type(dataset).__module__ == "datasets.arrow_dataset"


def compiled_function(dataset: Any) -> CompiledFunction | None:
    """Return the function that transforms the rows of a Hugging Face dataset, if it is compiled."""
    function = (dataset.format["format_kwargs"] or {}).get("transform")
    return function if isinstance(function, CompiledFunction) else None


def why_left(dataset: object) -> str:
    """Return the reason why a dataset is left as it is, as a clause."""
    if isinstance(dataset, ImageDataset):
        return _why_left_ours(dataset)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return "it is iterable, and not read by index"
    # Read from `__dict__`, because a property could run any code.
    if getattr(dataset, "__dict__", {}).get("transform") is None:
        return "none of its attributes is a known transform"
    return "no step of its transform is known"


def _why_left_ours(dataset: ImageDataset) -> str:
    """Return the reason why a dataset of fastload is left as it is; "" if it can be compiled."""
    if dataset.transform is None:
        return "it has no transform"
    if package_of(dataset.transform) != "torchvision":
        # Other callables receive arrays from it, not PIL images.
        return "its transform is not one of torchvision's"
    return "its on_error replaces samples" if dataset.substitutes_samples else ""


def is_torchvisions_loader(value: object) -> bool:
    """Return True for a loader of torchvision that opens image files with PIL."""
    folder = sys.modules.get("torchvision.datasets.folder")
    if folder is None:
        return False
    is_default = value is folder.default_loader and sys.modules["torchvision"].get_image_backend() == "PIL"
    return is_default or value is folder.pil_loader


def _of_torchvision(dataset: Any) -> ImageDataset | None:
    from torchvision import datasets

    if _reads_as(dataset, datasets.DatasetFolder):
        loader = dataset.loader
        return ListedFiles(dataset.samples, loader) if is_torchvisions_loader(loader) else None
    if _reads_as(dataset, datasets.CIFAR10, datasets.MNIST):
        return _arrays(dataset.data, dataset.targets)
    if _reads_as(dataset, datasets.SVHN, datasets.STL10) and dataset.labels is not None:
        return _arrays(np.ascontiguousarray(dataset.data.transpose(0, 2, 3, 1)), dataset.labels)
    return None


def _reads_as(dataset: object, *kinds: type) -> bool:
    """Return True for an instance of one of the classes, or of a subclass that inherits how it is read."""
    names = "__getitem__", "__getitems__", "__len__"
    return any(
        isinstance(dataset, kind)
        and all(getattr(type(dataset), name, None) is getattr(kind, name, None) for name in names)
        for kind in kinds
    )


def source_attributes(dataset: object) -> tuple[Any, ...]:
    """Return the attributes that the samples of a known dataset are made from."""
    names = ("samples", "loader", "data", "targets", "labels", "reader")
    return tuple(vars(dataset).get(name) for name in names)


def _arrays(data: ArrayLike, targets: ArrayLike) -> Arrays | None:
    pixels = np.asarray(data)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        return None
    return Arrays(pixels, targets)


def _of_timm(dataset: Any) -> ImageDataset | None:
    try:
        from timm.data.dataset import ImageDataset as TimmDataset
        from timm.data.readers.reader_image_folder import ReaderImageFolder
        from torchvision.datasets.folder import pil_loader
    except ImportError:
        return None  # a release before 0.8

    is_known = _reads_as(dataset, TimmDataset) and type(dataset.reader) is ReaderImageFolder
    is_plain = is_known and not dataset.load_bytes and dataset.input_img_mode == "RGB"
    if not is_plain or getattr(dataset, "additional_features", None) is not None:
        return None
    return ListedFiles(dataset.reader.samples, pil_loader)
