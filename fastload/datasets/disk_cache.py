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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastload.datasets._batch_source import JoinedImages, RecordImages, StoredImages, StoredImagesAt
from fastload.datasets.cache._cached_samples import ReadCounts
from fastload.datasets.cache._choose import CacheReport, Form
from fastload.datasets.cache._filler import start_filling, why_ended
from fastload.datasets.cache.options import Cache
from fastload.errors import AccessError, DamageError, DecodeError, FormatError, OptionError
from fastload.images.arrays import Pixels
from fastload.images.encodings import Encoding, Keep, encoding_named
from fastload.images.opencv import cv2
from fastload.images.region import Box
from fastload.shards.records import RecordReader
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder
from fastload.transforms.windows import Gathered

# Increased when the meaning of the records of a cache changes.
_VERSION = 2

_CHECK_INTERVAL_S = 1.0

# The module whose `run` packs the files, in a process of its own.
_FILLING_MODULE = "fastload.packing._cache_filling"

_PER_PROCESS = ("_source", "_process", "_reader", "_is_stored", "_counts", "_is_given_up")

# The caches of this process: two datasets of the same files share one.
_opened: weakref.WeakValueDictionary[str, DiskCache] = weakref.WeakValueDictionary()


def open_disk_cache(source: CacheableFiles, cache: Cache, form: Form | None) -> DiskCache:
    """Open the cache of some files, and start filling it; raise OptionError if its folder cannot be used."""
    if sys.platform == "win32":
        raise OptionError('cache="disk" needs Linux or macOS (flock): leave it out, or pack the dataset')
    folder = CacheFolder(cache.folder)
    # Decoders differ between releases, by a level at most.
    decoder = "" if form == "encoded" else cv2.__version__
    parts = "\n".join((str(_VERSION), str(form), decoder, source.origin))
    title = "".join(each if each.isalnum() else "_" for each in os.path.basename(source.name)) or "files"
    name = f"{title}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"
    folder.check()
    if not folder.dataset(name).is_dir() or folder.description(name).get("stopped"):
        folder.make()  # a complete one may lie in a folder that can only be read
    path = str(folder.dataset(name))
    opened = _opened.get(path)
    if opened is None:
        opened = _opened[path] = DiskCache(source, folder, name, form, cache.most_bytes)
    opened.refresh()
    return opened


class DiskCache:
    """The packed copy of a dataset's files, which may not be complete yet.

    `failure` is the reason why this process has stopped using it, or filling it; "" if it has not.
    """

    def __init__(
        self,
        source: CacheableFiles,
        folder: CacheFolder,
        name: str,
        form: Form | None,
        most_bytes: int | None,
    ) -> None:
        self.samples = None  # those of `OpenCache` are read through a store
        self._count = len(source)
        self._origin = source.origin
        self._folder = folder
        self._name = name
        self._form = form
        self._most_bytes = most_bytes
        # Only this process starts another one to pack; a worker forked from it does not.
        self._owner = os.getpid()
        self.failure = ""
        self._prepare(source)

    def _prepare(self, source: CacheableFiles | None) -> None:
        self._source = source
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: RecordReader | None = None
        self._is_stored: NDArray[np.bool_] = np.zeros(0, bool)
        self._encoding: Encoding = Keep()
        self._next_check_s = 0.0
        self._counts = ReadCounts()
        # Shared with forked processes, so that only the first one to find damage warns.
        self._is_given_up = mmap.mmap(-1, 1)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _PER_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare(None)

    def refresh(self) -> None:
        """Open the copy once it is complete; until then, ensure that a process makes it."""
        now = time.monotonic()
        if self.failure or now < self._next_check_s:
            return
        self._next_check_s = now + _CHECK_INTERVAL_S
        if self._is_given_up[0]:
            self._reader, self.failure = None, "another process found it to be damaged"
        elif self._reader is not None:
            if self._process is not None and os.getpid() == self._owner:
                self._process.poll()  # reaps it once it has ended
        elif self._folder.dataset(self._name).is_dir():
            self._open()
        elif self._source is not None and os.getpid() == self._owner:
            self._fill(self._source)

    def images(
        self, positions: NDArray[np.int64], files: StoredImagesAt, reducing_gap: float | None
    ) -> StoredImages:
        """Return the images at some positions: from the copy if it has them, else from `files`."""
        reader = self._reader
        if reader is not None:
            is_stored = self._is_stored[positions]
            try:
                images = _PartlyStored(
                    positions,
                    is_stored,
                    lambda stored: _StoredRecords(reader, self._encoding, stored, reducing_gap),
                    files,
                )
            except (AccessError, DamageError, FormatError) as error:
                self._give_up(error)
            else:
                hits = int(is_stored.sum())
                self._counts.add(hits, len(positions) - hits)
                return images
        self._counts.add(0, len(positions))
        return files(positions)

    def prefetch(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ask the system to read some records ahead; return the samples that must be read from files."""
        if self._reader is None:
            return indices
        is_stored = self._is_stored[indices]
        try:
            self._reader.prefetch("image", indices[is_stored])
        except (AccessError, DamageError, FormatError):
            return indices  # reading them will raise it again
        return indices[~is_stored]

    def report(self) -> CacheReport:
        """Return how full the cache is, and how often its records were read."""
        self.refresh()
        described = self._folder.description(self._name)
        total = max(1, self._count)
        samples = int(described.get("samples", total))
        ready = min(int(described.get("done", 0)), 0.99 * samples)  # complete only once it can be read
        form = self._form
        if self._reader is not None:
            samples = ready = int(self._is_stored.sum())
            form = "decoded" if self._encoding.name == "raw" else "encoded"
        hits, misses = self._counts.hits_and_misses
        return CacheReport(
            kind="disk",
            form=form,
            share=samples / total,
            reason=f"asked for: in {self._folder.dataset(self._name)}",
            ready=ready / total,
            used_bytes=self._folder.size_bytes(self._name),
            stopped=self.failure or str(described.get("stopped", "")),
            hits=hits,
            misses=misses,
        )

    def _open(self) -> None:
        """Open the complete copy for reading; remove it if it was found to be damaged."""
        if self._folder.description(self._name).get("stopped"):
            self._folder.remove(self._name)
            return
        try:
            lock = self._folder.lock(self._name, shared=True)
        except OSError as error:
            self._give_up(error)
            return
        if lock is None:
            return  # it is being published or removed at this moment
        try:
            self._folder.require_own(self._name)
            reader = RecordReader(self._folder.dataset(self._name))
            if (image := reader.manifest.image) is None:
                raise FormatError(f"{reader.folder}: a cache of images must have some, got none")
            self._require_origin(reader)
            self._encoding = encoding_named(image.encoding or "keep")
            self._is_stored = np.arange(self._count) < len(reader)
            self._is_stored[[int(each.key) for each in reader.manifest.kept]] = False
            if os.getpid() == self._owner:
                # Opens every shard, so that the workers of each epoch find them open.
                ends = np.cumsum([shard.records for shard in reader.manifest.shards])
                reader.take("orientation", ends - 1)
        except (OSError, ValueError) as error:  # AccessError, FormatError, keys that are not numbers
            lock.release()
            self._give_up(error)
            return
        weakref.finalize(self, lock.release)
        self._folder.note_use(self._name)
        self._reader = reader

    def _require_origin(self, reader: RecordReader) -> None:
        details = reader.manifest.made.get("details")
        found = details.get("origin") if isinstance(details, dict) else None
        if found != self._origin:
            raise FormatError(
                f"{reader.folder}: must be made of the files with the digest {self._origin}, it names {found}"
            )

    def _fill(self, source: CacheableFiles) -> None:
        """Start the process that makes the copy, unless another one does."""
        if self._process is not None:
            code = self._process.poll()
            if code is not None and not self._folder.dataset(self._name).is_dir():
                reason = self._folder.description(self._name).get("stopped")
                self.failure = str(reason or f"{why_ended(code)}; the next run resumes it")
            return
        try:
            lock = self._folder.lock(self._name)
            if lock is None:
                return
            try:
                if not self._folder.dataset(self._name).is_dir():
                    job = source, self._folder, self._name, self._form, self._most_bytes
                    self._process = start_filling(self, _FILLING_MODULE, job, lock.fileno())
            finally:
                lock.release()  # the process holds it now
        except OSError as error:
            self.failure = f"no process could be started to fill it ({error})"

    def _give_up(self, error: Exception) -> None:
        """Read files from now on; the next process that opens a damaged copy makes a new one."""
        self._reader = None
        self.failure = str(error)
        if isinstance(error, (DamageError, ValueError)) and self._folder.dataset(self._name).is_dir():
            described = self._folder.description(self._name)
            with contextlib.suppress(OSError):
                self._folder.describe(self._name, **{**described, "stopped": self.failure})
        if not self._is_given_up[0]:
            self._is_given_up[0] = 1
            warnings.warn(
                f"the cache on the disk is no longer used, and files are read instead: {error}",
                RuntimeWarning,
                stacklevel=2,
            )


class _StoredRecords(RecordImages):
    """Records of the copy; their orientation is a field, because pixels have no header."""

    def orientations(self) -> list[int]:
        return self._records.take("orientation", self._positions).tolist()  # type: ignore[no-any-return]


class _PartlyStored(JoinedImages, StoredImages):
    """Images at `positions`, from records if `is_stored`, else from files.

    An image whose record cannot be decoded is read from its file, which raises its own error.
    """

    def __init__(
        self,
        positions: NDArray[np.int64],
        is_stored: NDArray[np.bool_],
        records: StoredImagesAt,
        files: StoredImagesAt,
    ) -> None:
        super().__init__(len(positions))
        self._positions = positions
        self._is_stored = is_stored
        self._files = files
        # Files first, so that errors are raised in the same order as without a cache.
        parts = ((~is_stored, files), (is_stored, records))
        self._parts = [(opened(positions[chosen]), chosen) for chosen, opened in parts if chosen.any()]
        for images, chosen in self._parts:
            self.add(images, np.flatnonzero(chosen).tolist())

    def region(self, position: int, box: Box, size: tuple[int, int]) -> Pixels:
        try:
            return super().region(position, box, size)
        except (AccessError, DamageError, DecodeError):
            if not self._is_stored[position]:
                raise
            return self._files(self._positions[position : position + 1]).region(0, box, size)

    def orientations(self) -> list[int]:
        found = np.ones(len(self._positions), np.int64)
        for images, chosen in self._parts:
            found[chosen] = images.orientations()
        return found.tolist()

    def gathered(self) -> Gathered | None:
        return self._parts[0][0].gathered() if len(self._parts) == 1 else None
