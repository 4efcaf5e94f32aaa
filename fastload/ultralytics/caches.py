"""Ultralytics' caches: `cache="ram"` and `cache="disk"`.

Ultralytics stores resized images as pixels in memory, once for each training process (rank). Here they are
planes of brightness, and of colours at half the resolution as in a JPEG file, in memory shared by ranks and
workers. On disk, a packed copy of the files in the user's cache folder takes the place of `.npy` files; until
it is complete, and for images that it does not hold, Ultralytics reads the files.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from ultralytics.data import base
from ultralytics.data.base import BaseDataset
from ultralytics.utils import LOCAL_RANK, LOGGER, NUM_THREADS, TQDM

from fastload.contracts import Box
from fastload.datasets.cache.disk import DiskCache, open_disk_cache
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.sharing import can_cache, open_store, store_folder
from fastload.datasets.cache.store import Opening
from fastload.errors import OptionError
from fastload.images.arrays import Pixels, Size, StoredBytes
from fastload.images.deferred import DeferredImage, PixelSource
from fastload.images.encodings import Yuv420
from fastload.images.nv12 import nv12_size
from fastload.images.opencv import cv2
from fastload.images.region import upright
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.files import list_files
from fastload.system.patching import Replacement
from fastload.system.units import format_size
from fastload.ultralytics.bgr_image import BgrImage
from fastload.ultralytics.packed import packed_of, read

_PLANES = Yuv420()

# Height and width of the file's image, and of the stored one.
_SIZES = struct.Struct("<4I")

# The most images whose size Ultralytics asks for in check_cache_disk (8.4).
_SIZED_FILES = 30

_plain_cache = BaseDataset.cache_images
_plain_check_ram = BaseDataset.check_cache_ram
_plain_check_disk = BaseDataset.check_cache_disk


def cache_replacements() -> list[Replacement]:
    """Return the replacements of functions and methods: (owner, name, function)."""
    return [
        (BaseDataset, "cache_images", _cache_images),
        (BaseDataset, "check_cache_ram", _check_cache_ram),
        (BaseDataset, "check_cache_disk", _check_cache_disk),
        (base, "imread", _read),
    ]


class ImagesInMemory:
    """Images in a shared store, in place of the list `ims` of a dataset, where None means "not in memory"."""

    def __init__(self, opening: Opening) -> None:
        self.store = open_store(opening)

    def __getitem__(self, index: int) -> Pixels | None:
        found = self.image(index)
        return None if found is None else np.asarray(found[0])

    def image(self, index: int) -> tuple[BgrImage, Size, Size] | None:
        """Return an image, the height and width of its file, and its own; None if it is not stored."""
        if not self.store.has(index):
            return None
        height, width, *stored = _SIZES.unpack(self.store.fixed[index].tobytes())
        size = stored[0], stored[1]
        source = PixelSource(_Planes(self.store.data(index), size), 0, size)
        return BgrImage(DeferredImage.of(source)), (height, width), size

    def put(self, index: int, pixels: Pixels, original: Size) -> None:
        """Store an image, BGR, if there is room."""
        rgb: Pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        stored = np.frombuffer(_PLANES.encode(rgb, None, Path()).data, np.uint8)
        self.store.put(index, stored, _SIZES.pack(*original, *pixels.shape[:2]))


@dataclass(frozen=True, slots=True)
class _Planes:
    """A stored image, RGB; see `Regions`."""

    data: StoredBytes
    size: Size

    def region(self, position: int, box: Box, size: Size) -> Pixels:
        return _PLANES.decode_box(self.data, (*self.size, 3), box)


@functools.wraps(_plain_check_ram)
def _check_cache_ram(self: BaseDataset, safety_margin: float = 1.0) -> bool:
    # A margin of 1 requires twice the bytes of the pixels; half of these bytes are stored.
    return bool(_plain_check_ram(self, (safety_margin - 1) / 2 if _can_store(self) else safety_margin))


@functools.wraps(_plain_cache)
def _cache_images(self: BaseDataset) -> None:
    if self.cache != "ram" or not _can_store(self):
        _plain_cache(self)
        return
    images = ImagesInMemory(_opening(self))
    # Ranks begin at different images; each skips the images that another one has stored.
    first = max(LOCAL_RANK, 0) * self.ni // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

    def store(index: int) -> None:
        if not images.store.has(index):
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
            f"{self.prefix}fastload: cache='ram' takes {format_size(images.store.used_bytes)}, shared by all "
            "ranks and workers; colours have half the resolution, as in most JPEG files"
        )


def _can_store(dataset: BaseDataset) -> bool:
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
    folder = store_folder(holds_data=False)
    key, place = digest.hexdigest(), os.path.dirname(name)
    return Opening("ram", "decoded", folder, place, key, dataset.ni, _SIZES.size, capacity)


class CopiedFile(str):
    """The path of an image file of which there is a packed copy."""

    copy: DiskCache
    position: int

    def pixels(self) -> Pixels | None:
        """Return the image, BGR, as Ultralytics reads it; None if the copy does not hold it."""
        self.copy.refresh()
        try:
            images = self.copy.images(np.array([self.position]), _raise_not_copied, None)
            height, width = images.sizes[0].tolist()
            rgb = images.region(0, Box(0, 0, height, width), (height, width))
        except _NotCopiedError:
            return None
        return np.asarray(cv2.cvtColor(upright(rgb, images.orientations()[0]), cv2.COLOR_RGB2BGR), np.uint8)


class _NotCopiedError(Exception):
    pass


def _raise_not_copied(positions: NDArray[np.int64]) -> NoReturn:
    raise _NotCopiedError


@functools.wraps(_plain_check_disk)
def _check_cache_disk(self: BaseDataset, *args: object, **options: object) -> bool:
    """Make a packed copy of the files of a dataset; return False, so that Ultralytics makes no copy."""
    if packed_of(self.im_files[0]) is not None:
        outcome = "is not needed, because the dataset is packed"
    else:
        try:
            self.im_files = _copied_files(self)
        except OptionError as error:
            LOGGER.info(f"{self.prefix}fastload: cache='disk' is Ultralytics' own: {error}")
            return bool(_plain_check_disk(self, *args, **options))
        outcome = "uses a packed copy, which is made in the background: 'fastload cache list' shows it"
    # Ultralytics chooses these images by random draws; they are repeated, so that later draws stay the same.
    for _ in range(min(self.ni, _SIZED_FILES)):
        random.choice(self.im_files)
    self.cache = None
    LOGGER.info(f"{self.prefix}fastload: cache='disk' {outcome}")
    return False


def _copied_files(dataset: BaseDataset) -> list[CopiedFile]:
    if dataset.channels != 3:
        raise OptionError(f"its images have {dataset.channels} channels")
    paths = [os.path.abspath(name) for name in dataset.im_files]
    # Validation sorts the files differently, and can use the same copy.
    names = sorted(paths)
    copy = open_disk_cache(
        CacheableFiles(list_files("/", names), os.path.commonpath(names), alike_only=True), Cache("disk")
    )
    positions = {name: position for position, name in enumerate(names)}
    files = [CopiedFile(name) for name in dataset.im_files]
    for file, path in zip(files, paths, strict=True):
        file.copy, file.position = copy, positions[path]
    return files


@functools.wraps(read)
def _read(filename: str, *args: object, **options: object) -> Pixels | None:
    pixels = filename.pixels() if isinstance(filename, CopiedFile) else None
    return read(filename, *args, **options) if pixels is None else pixels
