"""`cache="disk"`: a packed copy of a dataset's files in the user's cache folder, instead of `.npy` files.

Until the copy is complete, and for images that it does not hold, Ultralytics reads the files.
"""

from __future__ import annotations

import functools
import os
import random
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from ultralytics.data import base
from ultralytics.data.base import BaseDataset
from ultralytics.utils import LOGGER

from fastload.datasets.cache.disk import DiskCache, open_disk_cache
from fastload.datasets.cache.options import Cache
from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.images.region import Box, upright
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.files import list_files
from fastload.system.patching import Replacement
from fastload.ultralytics._packed import packed_of, read

_plain_check = BaseDataset.check_cache_disk

# The most images whose size Ultralytics asks for in check_cache_disk (8.4).
_SIZED_FILES = 30


class CopiedFile(str):
    """The path of an image file of which there is a packed copy."""

    copy: DiskCache
    position: int

    def pixels(self) -> NDArray[np.uint8] | None:
        """Return the image, BGR, as Ultralytics reads it; None if the copy does not hold it."""
        self.copy.refresh()
        try:
            images = self.copy.images(np.array([self.position]), _raise_not_copied, None)
            height, width = images.sizes[0].tolist()
            rgb = images.region(0, Box(0, 0, height, width), (height, width))
            rgb = upright(rgb, images.orientations()[0])
        except _NotCopiedError:
            return None
        return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), np.uint8)


class _NotCopiedError(Exception):
    pass


def _raise_not_copied(positions: NDArray[np.int64]) -> NoReturn:
    raise _NotCopiedError


def disk_replacements() -> list[Replacement]:
    """Return the replacements of functions and methods: (owner, name, function)."""
    return [(BaseDataset, "check_cache_disk", _check_cache_disk), (base, "imread", _read)]


@functools.wraps(_plain_check)
def _check_cache_disk(self: BaseDataset, *args: object, **options: object) -> bool:
    """Make a packed copy of the files of a dataset; return False, so that Ultralytics makes no copy."""
    if packed_of(self.im_files[0]) is not None:
        outcome = "is not needed, because the dataset is packed"
    else:
        try:
            self.im_files = _copied_files(self)
        except OptionError as error:
            LOGGER.info(f"{self.prefix}fastload: cache='disk' is Ultralytics' own: {error}")
            return bool(_plain_check(self, *args, **options))
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
    source = CacheableFiles(list_files("/", names), os.path.commonpath(names), alike_only=True)
    copy = open_disk_cache(source, Cache("disk"))
    positions = {name: position for position, name in enumerate(names)}
    files = [CopiedFile(name) for name in dataset.im_files]
    for file, path in zip(files, paths, strict=True):
        file.copy, file.position = copy, positions[path]
    return files


@functools.wraps(read)
def _read(filename: Any, *args: object, **options: object) -> Any:
    pixels = filename.pixels() if isinstance(filename, CopiedFile) else None
    return read(filename, *args, **options) if pixels is None else pixels
