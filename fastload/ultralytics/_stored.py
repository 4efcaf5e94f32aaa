"""`cache="ram"`: the resized images of a dataset, stored once in the memory of a machine.

Ultralytics stores them as pixels, once for each training process (rank). Here they are planes of
brightness, and of colours at half the resolution as in a JPEG file, in memory shared by ranks and workers.
"""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ultralytics.data.base import BaseDataset
from ultralytics.utils import LOCAL_RANK, LOGGER, NUM_THREADS, TQDM

from fastload.datasets.cache.registry import can_cache, open_store, store_folder
from fastload.datasets.cache.store import Layout, Opening
from fastload.images.arrays import Pixels, Size
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.images.encodings import Yuv420, nv12_size
from fastload.images.opencv import cv2
from fastload.images.region import Box
from fastload.system.patching import Replacement
from fastload.system.units import format_size
from fastload.ultralytics._bgr_image import BgrImage
from fastload.ultralytics._packed import packed_of

_PLANES = Yuv420()

# Height and width of the file's image, and of the stored one.
_SIZES = struct.Struct("<4I")

_plain_cache = BaseDataset.cache_images
_plain_check = BaseDataset.check_cache_ram


class ImagesInMemory:
    """Images in a shared store, in place of the list `ims` of a dataset, where None means "not in memory"."""

    def __init__(self, opening: Opening) -> None:
        self._store = open_store(opening)

    def __getitem__(self, index: int) -> Pixels | None:
        found = self.image(index)
        return None if found is None else np.asarray(found[0])

    @property
    def used_bytes(self) -> int:
        """The memory that the images take."""
        return self._store.used_bytes

    def has(self, index: int) -> bool:
        """Return True if an image is stored."""
        return self._store.has(index)

    def image(self, index: int) -> tuple[BgrImage, Size, Size] | None:
        """Return an image, the height and width of its file, and its own; None if it is not stored."""
        if not self._store.has(index):
            return None
        height, width, *own = _SIZES.unpack(self._store.fixed[index].tobytes())
        size = own[0], own[1]
        source = PixelSource(_Planes(self._store.data(index), size), 0, size)
        return BgrImage(DeferredImage.of(source)), (height, width), size

    def put(self, index: int, pixels: Pixels, original: Size) -> None:
        """Store an image, BGR, if there is room."""
        height, width = pixels.shape[:2]
        rgb: Pixels = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), np.uint8)
        stored = np.frombuffer(_PLANES.encode(rgb, None, Path()).data, np.uint8)
        self._store.put(index, stored, _SIZES.pack(*original, height, width))


@dataclass(frozen=True, slots=True)
class _Planes:
    """A stored image, RGB; see `Regions`."""

    data: Pixels
    size: Size

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        return _PLANES.decode_box(self.data, (*self.size, 3), box)


def cache_replacements() -> list[Replacement]:
    """Return the replacements of methods of datasets: (class, name, function)."""
    return [(BaseDataset, "cache_images", _cache_images), (BaseDataset, "check_cache_ram", _check_cache_ram)]


@functools.wraps(_plain_check)
def _check_cache_ram(self: BaseDataset, safety_margin: float = 1.0) -> bool:
    # A margin of 1 requires twice the bytes of the pixels; half of these bytes are stored.
    is_possible = _is_possible(self)
    return bool(_plain_check(self, (safety_margin - 1) / 2 if is_possible else safety_margin))


@functools.wraps(_plain_cache)
def _cache_images(self: BaseDataset) -> None:
    if self.cache != "ram" or not _is_possible(self):
        _plain_cache(self)
        return
    images = ImagesInMemory(_opening(self))
    # Ranks begin at different images; each skips the images that another one has stored.
    first = max(LOCAL_RANK, 0) * self.ni // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    def store(index: int) -> None:
        if not images.has(index):
            pixels, original, _ = self.load_image(index)
            images.put(index, pixels, original)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        stored = pool.map(store, ((first + number) % self.ni for number in range(self.ni)))
        for _ in TQDM(stored, total=self.ni, desc=f"{self.prefix}Caching images", disable=LOCAL_RANK > 0):
            pass
    self.ims = images
    sizes = [found[1:] if (found := images.image(index)) else (None, None) for index in range(self.ni)]
    self.im_hw0, self.im_hw = map(list, zip(*sizes, strict=True))
    if LOCAL_RANK <= 0:
        LOGGER.info(
            f"{self.prefix}fastload: cache='ram' takes {format_size(images.used_bytes)}, shared by all ranks "
            "and workers; colours have half the resolution, as in most JPEG files"
        )


def _is_possible(dataset: BaseDataset) -> bool:
    return can_cache() and bool(dataset.channels == 3)


def _opening(dataset: BaseDataset) -> Opening:
    """Return the parameters of the store of a dataset, shared with other runs on these files at this size."""
    side = max(np.ravel(dataset.imgsz).tolist())
    digest = hashlib.blake2b(f"ultralytics 1 {type(dataset).__name__} {side}".encode(), digest_size=16)
    for name in dataset.im_files:
        packed = packed_of(name)
        if packed is None:
            status = os.stat(name)
            state = f"{status.st_size} {status.st_mtime_ns}"
        else:
            state = packed.identity
        digest.update(f"\n{name} {state}".encode(errors="surrogateescape"))
    # Memory is allocated as images are stored.
    capacity = dataset.ni * nv12_size(side, side)
    layout = Layout(dataset.ni, _SIZES.size, capacity)
    return Opening("ram", "decoded", store_folder(holds_data=False), digest.hexdigest(), layout)
