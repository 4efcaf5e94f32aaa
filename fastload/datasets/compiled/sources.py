"""Recognition of datasets whose images and targets fastload can read itself, and their reading."""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
import PIL.Image
import torch
from numpy.typing import ArrayLike, NDArray

from fastload.contracts import Box, Gathered
from fastload.datasets.batch import BatchSource
from fastload.datasets.cache.originals import FileOriginals
from fastload.datasets.compiled.late_files import info_of
from fastload.datasets.compiled.pipeline import CompiledCode
from fastload.datasets.compiled.recognition import Foreign, Untyped
from fastload.datasets.folder import FILE_STEP, FileImages, FilesDataset, Headers, unread_headers
from fastload.datasets.images import ImageDataset
from fastload.errors import DecodeError
from fastload.images.arrays import Pixels
from fastload.images.header import ImageHeader
from fastload.images.pixel_types import RGB
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.files import FileList, list_files
from fastload.transforms.compose import package_of
from fastload.transforms.transform import equal_sizes

Load = Callable[[str], PIL.Image.Image]
"""A loader of torchvision: opens an image file."""

# A mark in place of an orientation: the file is decoded by the loader of the original dataset.
_THEIRS = 15


Targets = Sequence[Any] | torch.Tensor


class TheirDataset(Untyped, Protocol):
    """A dataset of images and targets with the attributes of torchvision's."""

    transform: Foreign | None
    target_transform: Callable[[object], object] | None

    def __getitem__(self, index: int, /) -> tuple[object, object]: ...


def images_of(dataset: Untyped) -> ImageDataset | None:
    """Return the images of a known dataset, without its transform; None for any other dataset."""
    if isinstance(dataset, ImageDataset):
        return None if _why_left_ours(dataset) else dataset
    packages = {kind.__module__.partition(".")[0] for kind in type(dataset).__mro__}
    if "timm" in packages:
        images = _of_timm(dataset)
    else:
        images = _of_torchvision(dataset) if "torchvision" in packages else None
    if images is not None:
        images.name = type(dataset).__name__
    return images


def is_huggingface(dataset: object) -> TypeGuard[Untyped]:
    """Return True for a map-style dataset of Hugging Face's `datasets`."""
    return type(dataset).__module__ == "datasets.arrow_dataset"


def compiled_function(dataset: object) -> CompiledCode | None:
    """Return the function that transforms the rows of a Hugging Face dataset, if it is compiled."""
    if not is_huggingface(dataset):
        return None
    function = (dataset.format["format_kwargs"] or {}).get("transform")
    return function if type(function) is CompiledCode else None


def why_left(dataset: object) -> str:
    """Return the reason why a dataset is left as it is, as a clause."""
    if isinstance(dataset, ImageDataset):
        return _why_left_ours(dataset)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return "it is iterable, and not read by index"
    # Read from `__dict__`, because a property could run any code.
    if getattr(dataset, "__dict__", {}).get("transform") is None:
        return "none of its attributes is a known transform"
    return "no step of its transform would be made faster"


def _why_left_ours(dataset: ImageDataset) -> str:
    """Return the reason why a dataset of fastload is left as it is; "" if it can be compiled."""
    if dataset.transform is None:
        return "it has no transform"
    if package_of(dataset.transform) != "torchvision":
        # Other callables receive arrays from it, not PIL images.
        return "its transform is not one of torchvision's"
    if dataset.pixel_type != RGB:
        return f"its images are {dataset.pixel_type}, and torchvision's transforms get tensors of them"
    return "its on_error replaces samples" if dataset.substitutes_samples else ""


def is_torchvisions_loader(value: object) -> bool:
    """Return True for a loader of torchvision that opens image files with PIL."""
    folder = sys.modules.get("torchvision.datasets.folder")
    if folder is None:
        return False
    is_default = value is folder.default_loader and sys.modules["torchvision"].get_image_backend() == "PIL"
    return is_default or value is folder.pil_loader


def _of_torchvision(dataset: Untyped) -> TheirImages | None:
    from torchvision import datasets

    if _reads_as(dataset, datasets.DatasetFolder):
        loader = dataset.loader
        return ListedFiles(dataset.samples, loader) if is_torchvisions_loader(loader) else None
    if _reads_as(dataset, datasets.CIFAR10):
        return _arrays(dataset.data, dataset.targets)
    # The others hand out `int(target)`.
    if _reads_as(dataset, datasets.MNIST):
        return _arrays(dataset.data, dataset.targets, hands_ints=True)
    if _reads_as(dataset, datasets.SVHN, datasets.STL10) and dataset.labels is not None:
        pixels = np.ascontiguousarray(dataset.data.transpose(0, 2, 3, 1))
        return _arrays(pixels, dataset.labels, hands_ints=True)
    return None


def _reads_as(dataset: object, *kinds: type) -> bool:
    """Return True for an instance of one of the classes, or of a subclass that inherits how it is read."""
    names = "__getitem__", "__getitems__", "__len__"
    return any(
        isinstance(dataset, kind)
        and all(getattr(type(dataset), name, None) is getattr(kind, name, None) for name in names)
        for kind in kinds
    )


def source_attributes(dataset: object) -> tuple[object, ...]:
    """Return the attributes that the samples of a known dataset are made from."""
    names = ("samples", "loader", "data", "targets", "labels", "reader")
    return tuple(vars(dataset).get(name) for name in names)


def _arrays(data: ArrayLike, targets: Targets, hands_ints: bool = False) -> Arrays | None:
    pixels = np.asarray(data)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        return None
    return Arrays(pixels, targets, hands_ints)


def _of_timm(dataset: Untyped) -> TheirImages | None:
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


class ListedImages(FileImages):
    """Image files, given by their paths.

    JPEG and PNG files of at most 8 bits per channel are decoded by OpenCV, which gives the same pixels as
    PIL. All others, and those that cannot be decoded, are left to `load`, the dataset's own loader, which
    raises its own errors.
    """

    def __init__(
        self,
        load: Load,
        path: Callable[[int], str],
        read: Callable[[int], bytes],
        positions: list[int],
        headers: Headers,
    ) -> None:
        self._load = load
        self._infos: dict[int, dict[object, object]] = {}
        super().__init__(path, read, positions, headers)

    def _file(self, index: int) -> int:
        return zlib.crc32(os.fsencode(self._path(index))) >> 4  # the user may reorder the list

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        index = self._positions[position]
        if self._headers[index, 2] % FILE_STEP != _THEIRS:
            with contextlib.suppress(DecodeError):
                return super().region(position, box, size)
        pixels = self._decoded.get(position)
        if pixels is None:
            pixels = self._loaded(position)
        height, width = self.sizes[position].tolist()
        if pixels.shape[:2] != (height, width):
            self._headers[index] = 0
            raise DecodeError(
                f"{self._path(index)}: must have {height}x{width} pixels, as before, got "
                f"{pixels.shape[0]}x{pixels.shape[1]}: the file was replaced; the new one is used from now on"
            )
        return box.of(pixels)

    def info(self, position: int) -> dict[object, object]:
        """Return the `info` of one image, as the loader of the original dataset would."""
        if position not in self._infos:
            try:
                return info_of(self._files.get(position) or self._read(position))
            except OSError:
                self._loaded(position)
        return self._infos[position]

    def _opened(self, position: int) -> tuple[bytes, ImageHeader | None]:
        with contextlib.suppress(DecodeError, OSError):  # the loader's own error says more
            data, header = super()._opened(position)
            return data, header if header is not None and header.is_read_alike else None
        return b"", None

    def _whole(self, position: int, data: bytes) -> tuple[Pixels, int]:
        return self._loaded(position), _THEIRS

    def _loaded(self, position: int) -> Pixels:
        image = self._load(self._path(self._positions[position])).convert("RGB")
        self._infos[position] = image.info
        return np.asarray(image)


class TheirImages(ImageDataset):
    """Images of a dataset of another library.

    Attributes:
        name: The name of its class, which errors state.
    """

    name: str

    def __repr__(self) -> str:
        return self.name


class ListedFiles(TheirImages, FilesDataset):
    """Image files, listed as (path, target); `load` is the loader of the dataset that lists them."""

    def __init__(self, listed: Sequence[tuple[str, object]], load: Load) -> None:
        self.listed = listed
        self._count = len(listed)  # the user may extend the list
        self._load = load
        super().__init__(None, None, torch.contiguous_format, None, False)
        self._headers = unread_headers(self._count)

    def __len__(self) -> int:
        return self._count

    def _stored_images(self, positions: NDArray[np.int64]) -> ListedImages:
        indices = positions.tolist()
        return ListedImages(self._load, self._path, self._read, indices, self._headers)

    def _path(self, index: int) -> str:
        return self.listed[index][0]

    def _read(self, index: int) -> bytes:
        with open(self._path(index), "rb", buffering=0) as file:
            return file.read()

    def targets_of(self, positions: NDArray[np.int64], annotations: object = None) -> list[object]:
        return [self.listed[position][1] for position in positions.tolist()]

    def _originals(self) -> FileOriginals:
        files = self._files()
        paths = [files.names[0], files.names[-1]] if len(files) else ["/"]
        return FileOriginals(CacheableFiles(files, os.path.commonpath(paths), alike_only=True))

    def _files(self) -> FileList:
        return list_files("/", (os.path.abspath(path) for path, _ in self.listed))


class Arrays(TheirImages):
    """Images in one array (images, height, width, channels), uint8, with an array of targets.

    Attributes:
        pixels: The array.
        size: The number of pixels of an image.
    """

    lies_in_memory = True

    def __init__(self, pixels: Pixels, targets: Targets, hands_ints: bool = False) -> None:
        super().__init__(None, None, torch.contiguous_format, None, False)
        self._hands_ints = hands_ints
        # CIFAR's pixels are not contiguous: torchvision only transposes their colour planes.
        self.pixels = np.ascontiguousarray(pixels)
        self._their_targets = targets
        self.size = pixels.shape[1] * pixels.shape[2]

    def __len__(self) -> int:
        return len(self.pixels)

    def _stored_images(self, positions: NDArray[np.int64]) -> ArrayImages:
        return ArrayImages(self.pixels, positions)

    def targets_of(self, positions: NDArray[np.int64], annotations: object = None) -> list[object]:
        labels = self._labels(positions)
        if labels is not None:
            found: list[object] = labels.tolist()
            return found
        targets = self._targets_at(positions)
        return [int(each) for each in targets] if self._hands_ints else targets

    def _labels(self, positions: NDArray[np.int64]) -> NDArray[np.generic] | None:
        targets = self._their_targets
        if isinstance(targets, list):
            chosen = self._targets_at(positions)
            labels = np.asarray(chosen if set(map(type, chosen)) == {int} else [])
        else:
            labels = np.asarray(targets)[positions]
            if self._hands_ints and labels.dtype.kind in "bui":
                labels = labels.astype(np.int64)
        # All others, such as soft labels, are handed out as they are.
        return labels if labels.dtype == np.int64 and labels.ndim == 1 else None

    def _targets_at(self, positions: NDArray[np.int64]) -> list[Any]:
        # Read from those of the original dataset, which may be set at any time.
        return [self._their_targets[position] for position in positions.tolist()]


class ArrayImages(BatchSource):
    """Rows of an array of images."""

    def __init__(self, pixels: Pixels, positions: NDArray[np.int64]) -> None:
        self._pixels = pixels
        self._positions = positions
        self.channels = pixels.shape[3]
        self.sizes = equal_sizes(pixels.shape[1:3], len(positions))

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        image: Pixels = self._pixels[self._positions[position]]
        return box.of(image)

    def gathered(self) -> Gathered:
        return Gathered(self._pixels, self._positions)
