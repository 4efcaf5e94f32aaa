"""The files of a folder, from a store where they lie in one, else from the folder."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache.choose import Form
from fastload.datasets.cache.opening import Opening, open_store
from fastload.datasets.cache.records import stated_orientation
from fastload.datasets.cache.store import Store
from fastload.datasets.cache.tally import Tally
from fastload.errors import DecodeError, SourceError
from fastload.images.decode import decode
from fastload.sources.files import FileList

_SIZE = struct.Struct("<2I")  # height and width of pixels
FIXED_BYTES = _SIZE.size


class KeptFiles:
    """A folder's files through a store.

    What is not there is read from the folder, and kept if there is room.

    Args:
        files: The files.
        form: What is kept of each.
        opening: The store.

    Attributes:
        store: The store.
        tally: How many files were found there.
    """

    def __init__(self, files: FileList, form: Form, opening: Opening) -> None:
        self._files = files
        self.form = form
        self.opening = opening
        self._open(is_guest=False)

    def _open(self, is_guest: bool) -> None:
        self.store: Store = open_store(self.opening, is_guest)
        self.tally = Tally()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_files", "form", "opening")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open(is_guest=True)

    def read(self, index: int) -> bytes:
        """The bytes of a file.

        Raises:
            SourceError: The file is gone, cannot be read, or has another size than when listed.
        """
        if self.form == "encoded" and self.store.has(index):
            self.tally.add(1, 0)
            return self.store.data(index).tobytes()
        data = self._files.read(index)
        self.tally.add(0, 1)
        if self.form == "encoded":
            self.store.put(index, data, bytes(FIXED_BYTES))
        return data

    def pixels(self, index: int) -> NDArray[np.uint8] | None:
        """The pixels of a file's picture, (height, width, 3), read-only; None where they are not kept."""
        if self.form == "encoded" or not self.store.has(index):
            return None
        self.tally.add(1, 0)
        height, width = _SIZE.unpack(self.store.fixed(index).tobytes())
        return self.store.data(index).reshape(height, width, 3)

    def orientation(self, index: int) -> int:
        """The EXIF orientation of a file whose pixels are kept; 1 where it states none."""
        return self.store.orientation(index)

    def keep_pixels(self, index: int, pixels: NDArray[np.uint8], orientation: int) -> None:
        """Keeps the pixels of a file that was decoded whole, if that is what is kept.

        Args:
            index: Of the file.
            pixels: (height, width, 3), contiguous.
            orientation: The EXIF orientation that the file states.
        """
        if self.form == "decoded" and self.store.is_open:
            fixed = _SIZE.pack(*pixels.shape[:2])
            self.store.put(index, pixels.reshape(-1), fixed, orientation=orientation)

    def stacked(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]] | None:
        """The pixels of some files, where all are kept and have one size.

        Returns:
            (any number, height, width, 3), read-only, and which is whose.
        """
        if self.form == "encoded" or not self.store.found(indices).all():
            return None
        sizes = self.store.fixed(indices).view("<u4")
        stacked = self.store.stacked(indices)
        if stacked is None or (sizes != sizes[0]).any():
            return None
        height, width = sizes[0].tolist()
        return stacked[0].reshape(-1, height, width, 3), stacked[1]

    def missing(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those files of some that are not kept."""
        return indices[~self.store.found(indices)]

    def steps(self) -> Iterator[None]:
        """Keeps what is missing, one file after the other."""
        for index in self.store.missing().tolist():
            if not self.store.is_open:
                return
            # Whoever asks for such a file is told.
            with contextlib.suppress(SourceError, DecodeError):
                data = self.read(index)
                if self.form == "decoded":
                    self.keep_pixels(index, decode(data), stated_orientation(data))
            yield
