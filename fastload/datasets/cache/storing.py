"""Writing of samples to a store, by the processes that read them and by one that fills it in the background.

This module does not import torch, which the process that fills a store would take seconds to load.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from fastload.datasets.cache._choose import Form
from fastload.datasets.cache._store import Bytes, Store
from fastload.datasets.cache.filling import IsWanted
from fastload.datasets.cache.opening import Opening, open_inherited
from fastload.datasets.cache.originals import Originals
from fastload.errors import DamageError, DecodeError, SourceError
from fastload.images.encodings import Raw, Yuv420
from fastload.images.header import orientation_of
from fastload.images.opencv import cv2
from fastload.shards.schema import Column

# The column of an image's EXIF orientation, which pixels no longer hold.
ORIENTATION = "image/orientation"

# How pixels are stored.
PIXELS = Raw()

LENGTH = np.dtype("<u4")
_SHAPE = struct.Struct("<3I")


class RecordLayout:
    """Positions of a sample's columns in a store.

    The fixed part holds the EXIF orientation of the image (a byte), the columns of fixed size, and the
    lengths of the other columns; the tail holds these columns, except the image.
    """

    def __init__(self, originals: Originals) -> None:
        columns = originals.columns
        fixed = [Column(ORIENTATION, "uint8"), *(column for column in columns if not column.ragged)]
        ends = list(accumulate((column.row_bytes for column in fixed), initial=0))
        self.columns = {column.name: (column.numpy_dtype, column.shape) for column in fixed}
        self.places = dict(zip(self.columns, map(slice, ends, ends[1:]), strict=True))
        image = None if originals.encoding is None else "image"
        self.ragged = [column.name for column in columns if column.ragged and column.name != image]
        self.fixed_bytes = ends[-1] + LENGTH.itemsize * len(self.ragged)
        self.lengths = slice(ends[-1], self.fixed_bytes)


class StoreWriter:
    """Writes samples of a dataset to a store, in one form."""

    def __init__(self, originals: Originals, form: Form, store: Store) -> None:
        self._originals = originals
        self._form = form
        self._store = store
        self.layout = RecordLayout(originals)

    def fill(self, is_wanted: IsWanted) -> None:
        """Store the missing samples in the order of the dataset; at most half of the time is spent reading.

        The reads of workers come first: they store what they read, and together they read each sample once.
        """
        for position in self._store.missing().tolist():
            began = time.monotonic()
            if not (self._store.is_open and is_wanted()):
                return
            self.store_sample(position)
            time.sleep(time.monotonic() - began)
        self._store.note_filled()

    def store_sample(self, position: int) -> None:
        """Read a sample from its original, and store it; leave out one that cannot be read.

        Its error is raised where the sample is needed, and read from the original.
        """
        with contextlib.suppress(SourceError, DamageError, DecodeError):
            columns = self._originals.columns_of(position)
            if columns is not None:
                self._put(position, columns)

    def _put(self, position: int, columns: Mapping[str, bytes | Bytes]) -> None:
        encoding, orientation = self._originals.encoding, 1
        image: bytes | Bytes = b"" if encoding is None else columns["image"]
        changed: dict[str, bytes] = {}
        if encoding is not None and len(image):
            if not isinstance(encoding, Raw | Yuv420):
                orientation = orientation_of(bytes(image))
            if self._form == "decoded":
                shape = _SHAPE.unpack(bytes(columns["image/shape"]))
                pixels = encoding.decode(image, shape)
                if pixels.shape[:2] != shape[:2]:
                    return  # damaged: reading the original raises the error
                image = np.ascontiguousarray(pixels).reshape(-1)
                changed = {"image/shape": _SHAPE.pack(*shape[:2], 3), "image/tiles": b""}
        changed[ORIENTATION] = bytes([orientation])
        columns = {**columns, **changed}
        fixed, tail = (
            [bytes(columns[name]) for name in part] for part in (self.layout.columns, self.layout.ragged)
        )
        lengths = np.array([len(part) for part in tail], LENGTH).tobytes()
        self._store.put(position, image, b"".join([*fixed, lengths]), b"".join(tail))


def fill_store(
    originals: Originals, opening: Opening, descriptor: int, lock: int, is_wanted: IsWanted
) -> None:
    """Fill a store in a process of its own, which inherits the descriptors of the store and of a lock."""
    cv2.setNumThreads(1)
    StoreWriter(originals, opening.form, open_inherited(opening, descriptor)).fill(is_wanted)
