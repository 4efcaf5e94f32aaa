"""The interface of caches: samples of one dataset in a faster place, by their positions in the dataset.

A dataset asks its cache for images and never knows which of the media it is:

    StoreCache    memory that all processes of a node share (ram, tmpfs), in stored.py
    DiskCache     a packed copy on a disk, in disk.py

A dataset without a cache has one that holds nothing. Whatever a cache does not hold is read from the
dataset's own files or records, the *originals*. A device's memory is not among the media: see resident.py.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets._batch_source import Records, StoredImages, StoredImagesAt
from fastload.datasets.cache._choose import CacheReport
from fastload.datasets.cache.filling import start_filling, why_ended
from fastload.errors import AccessError, DamageError, DecodeError
from fastload.images.arrays import Pixels
from fastload.images.region import Box
from fastload.shards.records import RecordReader
from fastload.transforms.windows import Gathered

Positions = NDArray[np.int64]

_CHECK_INTERVAL_S = 1.0


class ReadCounts:
    """Numbers of samples read from a cache and from originals, by this process and those forked from it."""

    def __init__(self) -> None:
        # Processes forked one after another have consecutive PIDs, so that each has its own pair of counts.
        self._counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")

    def add(self, is_hit: NDArray[np.bool_]) -> None:
        """Count samples of this process, given a mask of those read from the cache."""
        place = 2 * os.getpid() % len(self._counts)
        hits = int(np.count_nonzero(is_hit))
        self._counts[place] += hits
        self._counts[place + 1] += len(is_hit) - hits

    @property
    def hits_and_misses(self) -> tuple[int, int]:
        """Totals of this process and those forked from it."""
        return sum(self._counts[::2]), sum(self._counts[1::2])


class SampleCache:
    """Cache of one dataset's samples; picklable, and usable in forked processes. This one holds nothing."""

    def __init__(self, choice: CacheReport) -> None:
        self._choice = choice

    def refresh(self) -> None:
        """Ensure that missing samples are stored in the background; cheap, called for every batch."""

    def images(
        self, positions: Positions, originals: StoredImagesAt, reducing_gap: float | None
    ) -> StoredImages:
        """Return the images at some positions: from the cache if it holds them, else `originals`."""
        return originals(positions)

    def records(self, originals: RecordReader) -> Records:
        """Return the records of a packed dataset, read through this cache."""
        return originals

    def verify_records(self, originals: RecordReader, positions: Positions) -> None:
        """Verify records of a packed dataset; raise DamageError for the first damaged one."""
        originals.verify_records(positions)

    def missing(self, positions: Positions) -> Positions:
        """Return the positions that will be read from originals; called for samples needed soon."""
        return positions

    def report(self) -> CacheReport:
        """Return the choice, how full the cache is, and how often it was read."""
        return self._choice


class FilledCache(SampleCache, ABC):
    """Base of caches that a process fills in the background.

    `failure` is the reason why this process no longer fills, or no longer reads, the cache; "" if it does.
    """

    #: Time from the first batch to the first check, at which a process that fills the cache may start.
    starts_after_s = 0.0

    #: Attributes that each process makes for itself in `_prepare`, and that are not pickled.
    per_process: tuple[str, ...] = ("_counts", "_next_check_s", "_process")

    def __init__(self, choice: CacheReport) -> None:
        super().__init__(choice)
        self.failure = ""
        self._prepare(is_unpickled=False)

    def _prepare(self, is_unpickled: bool) -> None:
        self._counts = ReadCounts()
        self._next_check_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self.per_process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare(is_unpickled=True)

    def refresh(self) -> None:
        """See `SampleCache`."""
        now = time.monotonic()
        if self._next_check_s is None:
            self._next_check_s = now + self.starts_after_s
        if now >= self._next_check_s:
            self._next_check_s = now + _CHECK_INTERVAL_S
            self._check()

    def images(
        self, positions: Positions, originals: StoredImagesAt, reducing_gap: float | None
    ) -> StoredImages:
        """See `SampleCache`; samples that the medium takes while they are read are stored first."""
        is_held = self.hold(positions)
        if not np.count_nonzero(is_held):  # of one sample, ten times as fast as any()
            return originals(positions)
        return _CachedImages(positions, is_held, lambda held: self._images(held, reducing_gap), originals)

    @abstractmethod
    def hold(self, positions: Positions) -> NDArray[np.bool_]:
        """Return a mask of the samples that can be read from the cache, and count all as read."""

    @abstractmethod
    def _images(self, positions: Positions, reducing_gap: float | None) -> StoredImages:
        """Return images that the cache holds."""

    @abstractmethod
    def _check(self) -> None:
        """Start filling if no process does, or begin to use what was filled; called once a second."""

    def _start(self, fill: Callable[..., None], arguments: tuple[Any, ...], *descriptors: int) -> None:
        """Start the process that fills the cache; see `start_filling`."""
        try:
            self._process = start_filling(self, fill, arguments, *descriptors)
        except OSError as error:
            self.failure = f"no process could be started to fill it ({error})"

    def _why_ended(self) -> str | None:
        """Return why the process that was started has ended, "" if it is done; None if there is none."""
        code = None if self._process is None else self._process.poll()
        return None if code is None else why_ended(code) if code else ""


class _CachedImages(StoredImages):
    """Images at `positions`, from the cache if `is_held`, else from originals.

    An image that cannot be decoded from the cache is read from its original, which raises its own error.
    """

    def __init__(
        self,
        positions: Positions,
        is_held: NDArray[np.bool_],
        cached: StoredImagesAt,
        originals: StoredImagesAt,
    ) -> None:
        self._positions, self._is_held, self._originals = positions, is_held, originals
        # Originals first, so that errors are raised in the same order as without a cache.
        is_all = np.count_nonzero(is_held) == len(is_held)
        self._others = None if is_all else originals(positions[~is_held])
        self._cached = cached(positions if self._others is None else positions[is_held])
        self.sizes = self._joined(self._cached.sizes, None if self._others is None else self._others.sizes)

    def _joined(self, cached: NDArray[np.int64], others: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Return values of the images in their order, given those of the images of either kind."""
        if others is None:
            return cached
        values = np.empty((len(self._positions), *cached.shape[1:]), np.int64)
        values[self._is_held], values[~self._is_held] = cached, others
        return values

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        place = position
        if self._others is not None:
            is_held = self._is_held[position]
            place = int(np.count_nonzero(self._is_held[:position] == is_held))
            if not is_held:
                return self._others.region(place, box, size)
        try:
            return self._cached.region(place, box, size)
        except (AccessError, DamageError, DecodeError):
            return self._original(position).region(0, box, size)

    def info(self, position: int) -> dict[Any, Any]:
        return self._original(position).info(0)

    def orientations(self) -> list[int]:
        others = None if self._others is None else np.array(self._others.orientations())
        return self._joined(np.array(self._cached.orientations()), others).tolist()  # type: ignore[no-any-return]

    def gathered(self) -> Gathered | None:
        return self._cached.gathered() if self._others is None else None

    def _original(self, position: int) -> StoredImages:
        return self._originals(self._positions[position : position + 1])
