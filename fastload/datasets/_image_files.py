"""Common base of datasets whose images are files."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from fastload.datasets._batch_source import unread_headers
from fastload.datasets.cache._attaching import Extent, estimated_bytes
from fastload.datasets.cache.files import FIXED_BYTES, CachedFiles
from fastload.datasets.cache.opening import Opening
from fastload.datasets.images import ImageDataset
from fastload.errors import DecodeError, SourceError
from fastload.sources.files import FileList
from fastload.sources.protocol import evenly_spaced

# The number of images from which the size of the decoded dataset is estimated.
_SAMPLED = 32


class FilesDataset(ImageDataset):
    """Base of datasets of image files; a subclass calls its `__init__` once `__len__` works."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._headers = unread_headers(len(self))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_headers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._headers = unread_headers(len(self))

    @property
    def _cached_files(self) -> CachedFiles | None:
        """The files through the store; None without one."""
        cached = self._cache.samples
        assert cached is None or isinstance(cached, CachedFiles)
        return cached

    @abstractmethod
    def _files(self) -> FileList:
        """Return the files."""

    @abstractmethod
    def _identity(self, files: FileList) -> str:
        """Return text that changes if the list of files or the content of one changes."""

    def _through_store(self, opening: Opening) -> CachedFiles:
        return CachedFiles(self._files(), opening)

    def _extent(self, wants_pixels: bool) -> Extent:
        files, count = self._files(), len(self)
        sampled = evenly_spaced(count, _SAMPLED) if wants_pixels else []
        return Extent(
            identity=self._identity(files),
            samples=count,
            stored_bytes=int(files.sizes_bytes.clip(min=0).sum()),
            decoded_bytes=estimated_bytes([*map(self._pixels_bytes, sampled)], count),
            other_bytes=0,
            fixed_bytes=FIXED_BYTES,
            paths=tuple(map(files.path, range(count))),
        )

    def _pixels_bytes(self, index: int) -> int:
        try:
            height, width = self._stored_images(np.array([index])).sizes[0].tolist()
        except (SourceError, DecodeError, OSError):
            return 0  # training will raise the error
        return int(height * width * 3)
