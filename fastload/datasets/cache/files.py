"""The files of a folder, read through a store."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache._cached_samples import CachedSamples
from fastload.datasets.cache.opening import Opening
from fastload.images.decode import decode
from fastload.images.header import orientation_of
from fastload.sources.files import FileList

_PIXELS = struct.Struct("<3I")  # height, width and EXIF orientation of stored pixels
FIXED_BYTES = _PIXELS.size


class CachedFiles(CachedSamples):
    """Files of a folder, read through a store."""

    def __init__(self, files: FileList, opening: Opening) -> None:
        self._files = files
        super().__init__(opening)

    def read(self, index: int) -> bytes:
        """Return the bytes of a file; raise SourceError if it cannot be read or has changed its size."""
        if not self.holds_pixels and self.store.has(index):
            self.counts.add(1, 0)
            return self.store.data(index).tobytes()
        data = self._files.read(index)
        self.counts.add(0, 1)
        if not self.holds_pixels:
            self.store.put(index, data, bytes(FIXED_BYTES))
        return data

    def pixels(self, index: int) -> NDArray[np.uint8] | None:
        """Return the pixels of a file's image, (height, width, 3), read-only; None if they are not stored."""
        if not self.holds_pixels or not self.store.has(index):
            return None
        self.counts.add(1, 0)
        height, width, _ = _PIXELS.unpack(self.store.fixed(index).tobytes())
        return self.store.data(index).reshape(height, width, 3)

    def orientation(self, index: int) -> int:
        """Return the EXIF orientation of a file whose pixels are stored; 1 if it has none."""
        return int(_PIXELS.unpack(self.store.fixed(index).tobytes())[2])

    def store_pixels(self, index: int, pixels: NDArray[np.uint8], orientation: int) -> None:
        """Store the contiguous pixels (height, width, 3) of a decoded file, if pixels are stored here."""
        if self.holds_pixels:
            self.store.put(index, pixels.reshape(-1), _PIXELS.pack(*pixels.shape[:2], orientation))

    def stack(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]] | None:
        """Return pixels (any number, height, width, 3), read-only, and the row of each file.

        None unless the pixels of all these files are stored and have one size.
        """
        if not self.holds_pixels or not self.store.found(indices).all():
            return None
        sizes = self.store.fixed(indices).view("<u4")[:, :2]
        stacked = self.store.stack(indices)
        if stacked is None or (sizes != sizes[0]).any():
            return None
        height, width = sizes[0].tolist()
        return stacked[0].reshape(-1, height, width, 3), stacked[1]

    def _store_sample(self, index: int) -> None:
        data = self.read(index)
        if self.holds_pixels:
            self.store_pixels(index, decode(data), orientation_of(data))
