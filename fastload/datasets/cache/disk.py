"""Cache of image files on a disk: a packed copy, made in the background and read once it is complete.

The copy is an ordinary packed dataset, one record a file, in a `CacheFolder`; targets stay with the dataset.
The first process that opens the cache starts another one, which packs the files. Every process checks once a
second whether the copy is complete, and then reads images from it; if the copy is damaged, from the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import subprocess
import sys
import time
import warnings
import weakref
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.batch import BatchSource, Positions
from fastload.datasets.cache.disk_filling import CopyPlace, start_filling
from fastload.datasets.cache.options import Cache, CacheReport
from fastload.datasets.cache.sample_cache import ImagesAt, SampleCache
from fastload.datasets.records import RecordImages
from fastload.errors import AccessError, DamageError, FormatError, OptionError
from fastload.images.encodings import Encoding, Keep, encoding_named
from fastload.images.opencv import cv2
from fastload.shards.records import RecordReader
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder, cache_name

# Increased when the meaning of the records of a cache changes.
_VERSION = 2

_CHECK_INTERVAL_S = 1.0

# The caches of this process: two datasets of the same files share one.
_opened: weakref.WeakValueDictionary[str, DiskCache] = weakref.WeakValueDictionary()


def open_disk_cache(source: CacheableFiles, cache: Cache) -> DiskCache:
    """Open the cache of some files, and start filling it; raise OptionError if its folder cannot be used."""
    if sys.platform == "win32":
        # The process that fills a cache inherits its lock, which Windows has no way for.
        raise OptionError('cache="disk" needs Linux or macOS: leave it out, or pack the dataset')
    folder = CacheFolder(cache.folder)
    # Decoders differ between releases, by a level at most.
    decoder = "" if cache.form == "encoded" else cv2.__version__
    parts = "\n".join((str(_VERSION), str(cache.form), decoder, source.origin))
    name = cache_name(source.name, hashlib.sha256(parts.encode()).hexdigest())
    folder.check()
    if not folder.dataset(name).is_dir() or folder.description(name).stopped:
        folder.make()  # a complete one may lie in a folder that can only be read
    path = str(folder.dataset(name))
    opened = _opened.get(path)
    if opened is None:
        opened = _opened[path] = DiskCache(source, CopyPlace(folder, name, cache.form, cache.most_bytes))
    opened.refresh()
    return opened


class DiskCache(SampleCache):
    """The packed copy of a dataset's files, which may not be complete yet.

    `failure` is the reason why this process no longer fills, or no longer reads, the copy; "" if it does.
    """

    def __init__(self, source: CacheableFiles, place: CopyPlace) -> None:
        super().__init__(CacheReport("disk", place.form, 1.0, f"asked for: in {place.dataset}"))
        self.place = place
        self._count, self._origin = len(source), source.origin
        # Only this process starts another one to pack; a worker forked from it does not.
        self._owner = os.getpid()
        self._source: CacheableFiles | None = source
        self._begin()

    def _begin(self) -> None:
        self.failure = ""
        self._next_check_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: RecordReader | None = None
        self._is_stored = np.zeros(self._count, bool)
        self._encoding: Encoding = Keep()
        # Shared with forked processes, so that only the first one to find damage warns.
        self._is_given_up = mmap.mmap(-1, 1)

    def __getstate__(self) -> dict[str, object]:
        names = "_choice", "place", "_count", "_origin", "_owner"
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        SampleCache.__init__(self, self._choice)
        self._source = None
        self._begin()

    def refresh(self) -> None:
        """See `SampleCache`; this also starts the process that makes the copy, if none does."""
        now = time.monotonic()
        if now >= self._next_check_s:
            self._next_check_s = now + _CHECK_INTERVAL_S
            self._check()

    def images(self, positions: Positions, originals: ImagesAt, reducing_gap: float | None) -> BatchSource:
        """See `SampleCache`; if the copy is found to be damaged, it is not read again."""
        try:
            return super().images(positions, originals, reducing_gap)
        except (AccessError, DamageError, FormatError) as error:
            if self._reader is None:
                raise  # of an original
            self._give_up(error)
            return originals(positions)

    def missing(self, positions: Positions) -> Positions:
        """See `SampleCache`; the system is asked to read the others ahead."""
        is_stored = self._is_stored[positions]
        if self._reader is not None:
            # Reading them will raise the error again.
            with contextlib.suppress(AccessError, DamageError, FormatError):
                self._reader.prefetch("image", positions[is_stored])
        return positions[~is_stored]

    def report(self) -> CacheReport:
        self.refresh()
        described, total = self.place.folder.description(self.place.name), max(1, self._count)
        samples, form = described.samples or total, self.place.form
        ready = min(described.done, 0.99 * samples)  # complete only once it can be read
        if self._reader is not None:
            samples = ready = int(self._is_stored.sum())
            form = "decoded" if self._encoding.is_raw else "encoded"
        report = replace(
            self._choice,
            form=form,
            share=samples / total,
            ready=ready / total,
            used_bytes=self.place.folder.size_bytes(self.place.name),
            stopped=self.failure or described.stopped,
        )
        return self._counted(report)

    def _check(self) -> None:
        if self.failure:
            return
        if self._is_given_up[0]:
            self._stop_reading("another process found it to be damaged")
        elif self._reader is not None:
            if os.getpid() == self._owner and self._process is not None:
                self._process.poll()  # reaps it once it has ended
        elif self.place.dataset.is_dir():
            self._open()
        elif self._source is not None and os.getpid() == self._owner:
            self._fill(self._source)

    def _mask(self, positions: Positions) -> NDArray[np.bool_]:
        return self._is_stored[positions]

    def _images(self, positions: Positions, reducing_gap: float | None) -> BatchSource:
        assert self._reader is not None
        self._reader.verify_records(positions)
        return RecordImages(self._reader, self._encoding, positions, reducing_gap, "orientation")

    def _open(self) -> None:
        """Open the complete copy for reading; remove it if it was found to be damaged."""
        if self.place.folder.description(self.place.name).stopped:
            self.place.folder.remove(self.place.name)
            return
        try:
            lock = self.place.folder.share(self.place.name)
        except OSError as error:
            self._give_up(error)
            return
        if lock is None:
            return  # it is being published or removed at this moment
        try:
            reader = RecordReader(self.place.dataset)
            if (image := reader.manifest.image) is None:
                raise FormatError(f"{reader.folder}: a cache of images must have some, got none")
            if (origin := reader.manifest.details.get("origin")) != self._origin:
                must = f"must be made of the files with the digest {self._origin}"
                raise FormatError(f"{reader.folder}: {must}, it names {origin}")
            encoding = encoding_named(image.encoding, pixel_type=image.pixel_type)
            is_stored = np.arange(self._count) < len(reader)
            is_stored[[int(each.key) for each in reader.manifest.kept]] = False
            if os.getpid() == self._owner:
                # Opens every shard, so that the workers of each epoch find them open.
                ends = np.cumsum([shard.records for shard in reader.manifest.shards])
                reader.take("orientation", ends - 1)
        except (OSError, ValueError) as error:  # AccessError, FormatError, keys that are not numbers
            lock.release()
            self._give_up(error)
            return
        weakref.finalize(self, lock.release)
        self._reader, self._encoding, self._is_stored = reader, encoding, is_stored

    def _fill(self, source: CacheableFiles) -> None:
        """Start the process that makes the copy, unless another one does."""
        if self._process is not None:
            code = self._process.poll()
            if code is not None and not self.place.dataset.is_dir():
                how = f"was killed (signal {-code})" if code < 0 else f"ended with code {code}"
                stopped = self.place.folder.description(self.place.name).stopped
                self.failure = stopped or f"the process that fills it {how}; the next run resumes it"
            return
        try:
            lock = self.place.folder.lock(self.place.name)
        except OSError as error:
            self.failure = f"its lock cannot be used ({error})"
            return
        if lock is None:
            return
        try:
            if not self.place.dataset.is_dir():
                self._process = start_filling(self, source, self.place, lock.fileno())
        except OSError as error:
            self.failure = f"no process could be started to fill it ({error})"
        finally:
            lock.release()  # the process holds it now

    def _stop_reading(self, reason: str) -> None:
        self.failure = reason
        self._reader = None
        self._is_stored = np.zeros(self._count, bool)

    def _give_up(self, error: Exception) -> None:
        """Read files from now on; the next process that opens a damaged copy makes a new one."""
        self._stop_reading(str(error))
        if isinstance(error, (DamageError, ValueError)) and self.place.dataset.is_dir():
            with contextlib.suppress(OSError):
                self.place.folder.describe(self.place.name, stopped=self.failure)
        if not self._is_given_up[0]:
            self._is_given_up[0] = 1
            warnings.warn(
                f"the cache on the disk is no longer used, and files are read instead: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
