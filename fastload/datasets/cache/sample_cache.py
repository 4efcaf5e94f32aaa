"""The interface of caches: samples of one dataset in a faster place, by their positions in the dataset.

A dataset asks its cache for images and never knows which of the media it is:

    StoreCache    memory that all processes of a node share (ram, tmpfs), in stored.py
    DiskCache     a packed copy on a disk, in disk.py

All media have one registry, `system.cache_folder.CacheFolder`: who uses a store or a copy, how large it is,
when it was used last, and how it is removed. Users share its lock; whoever makes or removes it is alone.

Whatever a cache does not hold is read from the dataset's own files or records, the *originals*. A device's
memory is not among the media: see resident.py.
"""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastload.contracts import Box, Gathered
from fastload.datasets.batch import BatchSource, Positions
from fastload.datasets.cache.options import CacheReport
from fastload.datasets.composed import JoinedImages
from fastload.datasets.records import Records
from fastload.errors import AccessError, DamageError, DecodeError
from fastload.images.arrays import Pixels
from fastload.shards.records import RecordReader

ImagesAt = Callable[[Positions], BatchSource]
"""Returns the images at some positions, as they are stored: before their orientation is applied."""


class SampleCache(ABC):
    """Cache of one dataset's samples; picklable, and usable in forked processes.

    It counts how many samples are read from it.
    """

    def __init__(self, choice: CacheReport) -> None:
        self._choice = choice
        # Pairs of hits and misses, shared with forked processes: those forked one after another have
        # consecutive PIDs, so that each has its own pair.
        self._counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")

    @abstractmethod
    def refresh(self) -> None:
        """Begin to use what has been stored in the background; cheap, called for every batch."""

    @abstractmethod
    def missing(self, positions: Positions) -> Positions:
        """Return the positions that will be read from originals; called for samples needed soon."""

    @abstractmethod
    def report(self) -> CacheReport:
        """Return the choice, how full the cache is, and how often it was read."""

    def records(self, originals: RecordReader) -> Records:
        """Return the records of a packed dataset, read through this cache if it holds records."""
        return originals

    def images(self, positions: Positions, originals: ImagesAt, reducing_gap: float | None) -> BatchSource:
        """Return the images at some positions: from the cache if it holds them, else `originals`.

        Samples that the medium takes while they are read are stored first.
        """
        is_held = self.hold(positions)
        count = np.count_nonzero(is_held)
        if count == len(positions):
            return _CachedImages(self._images(positions, reducing_gap), positions, originals)
        if not count:
            return originals(positions)
        joined, held, others = JoinedImages(len(positions)), np.flatnonzero(is_held), np.flatnonzero(~is_held)
        # Originals first, so that errors are raised in the same order as without a cache.
        joined.add(originals(positions[others]), others.tolist())
        cached = self._images(positions[held], reducing_gap)
        joined.add(_CachedImages(cached, positions[held], originals), held.tolist())
        return joined

    def hold(self, positions: Positions) -> NDArray[np.bool_]:
        """Return a mask of the samples that can be read from the cache, and count all as read.

        Of records, those that it does not hold are verified; raises DamageError for the first damaged one.
        """
        is_held = self._mask(positions)
        hits = int(np.count_nonzero(is_held))
        place = 2 * os.getpid() % len(self._counts)
        self._counts[place] += hits
        self._counts[place + 1] += len(positions) - hits
        if hits < len(positions):
            is_held[~is_held] = self._take(positions[~is_held])
        return is_held

    @abstractmethod
    def _mask(self, positions: Positions) -> NDArray[np.bool_]:
        """Return a new mask of the samples that the cache holds."""

    def _take(self, positions: Positions) -> NDArray[np.bool_]:
        """Store samples that are about to be read; return a mask of those that the cache then holds."""
        return np.zeros(len(positions), bool)

    @abstractmethod
    def _images(self, positions: Positions, reducing_gap: float | None) -> BatchSource:
        """Return images that the cache holds."""

    def _counted(self, report: CacheReport) -> CacheReport:
        """Return a report with the counts of this process and those forked from it."""
        return replace(report, hits=sum(self._counts[::2]), misses=sum(self._counts[1::2]))


class _CachedImages(BatchSource):
    """Images from a cache; one that cannot be decoded is read from its original, which raises the error."""

    def __init__(self, cached: BatchSource, positions: Positions, originals: ImagesAt) -> None:
        self._cached, self._positions, self._originals = cached, positions, originals
        self.sizes, self.channels, self.dtype = cached.sizes, cached.channels, cached.dtype

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        try:
            return self._cached.region(position, box, size)
        except (AccessError, DamageError, DecodeError):
            return self._original(position).region(0, box, size)

    def info(self, position: int) -> dict[object, object]:
        return self._original(position).info(0)

    def orientations(self) -> list[int]:
        return self._cached.orientations()

    def gathered(self) -> Gathered | None:
        return self._cached.gathered()

    def _original(self, position: int) -> BatchSource:
        return self._originals(self._positions[position : position + 1])
