"""Ceiling of bench_load.py: `cv2.imdecode` and the resize in a loop on one core, and nothing else.

Records are read, and crops drawn and cut out, beforehand: of a file with tiles, only the tiles that the crop
touches, as a separate JPEG. Nothing is collated, moved or flipped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from epochs import Loading, serve
from load_fastload import packed
from numpy.typing import NDArray
from photos import draw_crop

import fastload
from fastload.contracts import Box
from fastload.images.decode import decode
from fastload.images.jpeg import index_tiles
from fastload.images.region import decode_region
from fastload.images.resize import Resampling, resize_into


class Crop(NamedTuple):
    """JPEG data to decode, and the position of the crop in its pixels."""

    data: NDArray[np.uint8]
    flags: int
    rows: slice
    columns: slice


def prepare(job: Mapping[str, Any]) -> Loading:
    """Cut out the crops of all records."""
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    stored = packed(job)
    dataset = fastload.PackedDataset(stored.path)
    crops = [_cut(dataset.read(index).stored("image")) for index in range(len(dataset))]
    resampling = Resampling(antialias=job["antialias"])
    out = np.empty((job["size"], job["size"], 3), np.uint8)

    def epoch() -> Iterator[None]:
        random.shuffle(crops)
        for data, flags, rows, columns in crops:
            resize_into(cv2.imdecode(data, flags)[rows, columns], out, resampling)
            yield

    return Loading(epoch, stored, {}, lambda batch: 1)


def _cut(stored: Any) -> Crop:
    """Return a random crop of a stored image in the form that fastload hands to OpenCV."""
    data = bytes(stored)
    size = decode(data).shape[:2]
    box, index = Box(*draw_crop(*size)), index_tiles(data)
    with _Recorder() as calls:
        if index is None:
            pixels = decode(data)[box.top : box.top + box.height, box.left : box.left + box.width]
        else:
            pixels = decode_region(data, size, index, box)
    [(jpeg, flags, whole)] = calls
    offset = pixels.ctypes.data - whole.ctypes.data
    top, left = offset // whole.strides[0], offset % whole.strides[0] // whole.strides[1]
    rows, columns = slice(top, top + box.height), slice(left, left + box.width)
    assert np.array_equal(whole[rows, columns], pixels)
    return Crop(jpeg, flags, rows, columns)


class _Recorder:
    """Recorder of the arguments and results of `cv2.imdecode`."""

    def __enter__(self) -> list[tuple[NDArray[np.uint8], int, NDArray[np.uint8]]]:
        self._imdecode = cv2.imdecode
        calls: list[tuple[NDArray[np.uint8], int, NDArray[np.uint8]]] = []

        def imdecode(data: NDArray[np.uint8], flags: int) -> NDArray[np.uint8]:
            pixels = self._imdecode(data, flags)
            calls.append((np.array(data), flags, pixels))
            return pixels

        cv2.imdecode = imdecode
        return calls

    def __exit__(self, *error: object) -> None:
        cv2.imdecode = self._imdecode


if __name__ == "__main__":
    serve(prepare)
