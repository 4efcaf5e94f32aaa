"""Common base of datasets whose images are files."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fastload.datasets._batch_source import unread_headers
from fastload.datasets.cache.originals import FileOriginals
from fastload.datasets.images import ImageDataset
from fastload.sources.cacheable import CacheableFiles


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

    @abstractmethod
    def _cacheable_files(self) -> CacheableFiles:
        """Return the files for a cache."""

    def _originals(self) -> FileOriginals:
        return FileOriginals(self._cacheable_files())
