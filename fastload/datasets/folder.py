"""FolderDataset: the images of a folder as a map-style dataset, without packing."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.batch_source import FileImages, Positions, unread_headers
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.originals import FileOriginals
from fastload.datasets.images import ImageDataset
from fastload.errors import SourceError
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.file_source import FileSource
from fastload.sources.opening import open_class_folders
from fastload.transforms.compose import AnyTransform


class FilesDataset(ImageDataset):
    """Base of datasets of image files; a subclass calls its `__init__` once `__len__` works."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._headers = unread_headers(len(self))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in super().__getstate__().items() if name != "_headers"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._headers = unread_headers(len(self))


class FolderDataset(FilesDataset):
    """The samples of a folder of images, without packing: like ImageFolder, decoded by OpenCV.

    Classes, files and their order are those of torchvision's ImageFolder, which selects files by their
    suffix; others that packing recognises by content, such as `.gif`, are not included. Images of a folder
    without class folders have the label -1. Samples are those of `PackedDataset`.

    Args:
        path: The folder.
        transform: Applied to every image.
        target_transform: Applied to every target.
        memory_format: Same meaning as for `PackedDataset`.
        reducing_gap: Same meaning as for `PackedDataset`.
        apply_orientation: Same meaning as for `PackedDataset`.
        cache: Same meaning as for `PackedDataset`.
        layout: "classes" to take the folders for classes where they could mean something else too, such as
            `images` and `masks`; None to refuse such folders.

    Attributes:
        root: The path that was passed.
        source: The listing of its files.

    Raises:
        SourceError: The folder cannot be listed, holds no images, is split into train, val, test, has a
            layout that holds more than labels, such as YOLO's, or can be read in two ways.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: AnyTransform | None = None,
        target_transform: AnyTransform | None = None,
        *,
        memory_format: torch.memory_format = torch.channels_last,
        reducing_gap: float | None = None,
        apply_orientation: bool = False,
        cache: str | Cache | None = None,
        layout: str | None = None,
    ) -> None:
        self.root = os.fspath(path)
        sources = open_class_folders(self.root, layout)
        if "" not in sources:
            raise SourceError(f"{self.root}: is split into {', '.join(sources)}: name one of these folders")
        self.source = sources[""]
        super().__init__(transform, target_transform, memory_format, reducing_gap, apply_orientation)
        self.classes = list(self.source.classes)
        self.use_cache(cache)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"FolderDataset({self.root!r}, {len(self):,} files)"

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """The (path, label) of each file, as in ImageFolder; `imgs` is the same."""
        files = self.source.files
        return [(files.path(index), label) for index, label in enumerate(self.targets)]

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """See `samples`."""
        return self.samples

    @functools.cached_property
    def targets(self) -> list[int]:
        """The labels of all files."""
        return np.asarray(self.source.values["label"]).tolist()  # type: ignore[no-any-return]

    def files_read(self) -> FileSource | None:
        """See `ReadsFiles`; a subclass with samples of its own changes them."""
        is_plain = self.transform is None and self.target_transform is None
        return self.source if is_plain and type(self).__getitem__ is ImageDataset.__getitem__ else None

    def _stored_images(self, positions: Positions) -> FileImages:
        files = self.source.files
        return FileImages(files.path, files.read, positions.tolist(), self._headers, self.reducing_gap)

    def _prefetch(self, positions: Positions) -> None:
        self.source.files.prefetch(positions.tolist())

    def _originals(self) -> FileOriginals:
        files = self.source.files
        return FileOriginals(CacheableFiles(files, files.folder, alike_only=False))

    def targets_of(self, positions: Positions, annotations: object = None) -> list[object]:
        return self._labels(positions).tolist()  # type: ignore[no-any-return]

    def _labels(self, positions: Positions) -> NDArray[np.int64]:
        return np.asarray(self.source.values["label"], np.int64)[positions]
