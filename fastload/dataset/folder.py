"""FolderDataset: the images of a folder, as a map-style dataset, with no packing."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data
from numpy.typing import NDArray

from fastload.dataset.images import ImageDataset, Transform
from fastload.errors import SourceError
from fastload.pictures import FileHeaders, FilePictures
from fastload.sources.folder import list_folder


class FolderDataset(ImageDataset):
    """The samples of a folder of images, with no packing: ImageFolder, decoded by OpenCV.

    Classes, files and their order are those of torchvision's ImageFolder; a folder without class
    folders gives its images the label -1. Samples are those of `PackedDataset`.

    Args:
        path: The folder.
        transform: Applied to every image.
        target_transform: Applied to every target.
        memory_format: As for `PackedDataset`.
        reducing_gap: As for `PackedDataset`.
        apply_orientation: As for `PackedDataset`.

    Attributes:
        root: The folder, as it was given.
        source: The listing of its files.

    Raises:
        SourceError: The folder cannot be listed, holds no images, or is split into train, val, test.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        memory_format: torch.memory_format = torch.channels_last,
        reducing_gap: float | None = None,
        apply_orientation: bool = False,
    ) -> None:
        super().__init__(transform, target_transform, memory_format, reducing_gap, apply_orientation)
        self.root = os.fspath(path)
        sources = list_folder(os.path.expanduser(self.root))
        if "" not in sources:
            raise SourceError(f"{self.root}: is split into {', '.join(sources)}: name one of these folders")
        self.source = sources[""]
        self._headers = FileHeaders(len(self.source))
        self.classes = list(self.source.classes)

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"FolderDataset({self.root!r}, {len(self)} files)"

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of all files, as ImageFolder has them; `imgs` is the same."""
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

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_headers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._headers = FileHeaders(len(self.source))

    def prefetch(self, indices: Sequence[int]) -> None:
        """Tells the system that some files will be read soon, so that it fetches them from the disk now.

        Args:
            indices: Of the files; all in range.
        """
        self.source.files.prefetch(indices)

    def _stored_pictures(self, positions: NDArray[np.int64]) -> FilePictures:
        return FilePictures(self.source, self.root, positions.tolist(), self._headers, self.reducing_gap)

    def _targets(self, positions: NDArray[np.int64]) -> list[Any]:
        return self._labels(positions).tolist()  # type: ignore[no-any-return]

    def _labels(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = np.asarray(self.source.values["label"], np.int64)[positions]
        return labels
