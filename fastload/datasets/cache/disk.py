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
import sys
import warnings
import weakref
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastload.datasets._batch_source import RecordImages, StoredImages, StoredImagesAt
from fastload.datasets.cache._choose import CacheReport, Form
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.sample_cache import FilledCache, Positions
from fastload.errors import AccessError, DamageError, FormatError, OptionError
from fastload.images.encodings import Encoding, Keep, encoding_named
from fastload.images.opencv import cv2
from fastload.shards.records import RecordReader
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder

# Increased when the meaning of the records of a cache changes.
_VERSION = 2

# The caches of this process: two datasets of the same files share one.
_opened: weakref.WeakValueDictionary[str, DiskCache] = weakref.WeakValueDictionary()


def open_disk_cache(source: CacheableFiles, cache: Cache) -> DiskCache:
    """Open the cache of some files, and start filling it; raise OptionError if its folder cannot be used."""
    if sys.platform == "win32":
        raise OptionError('cache="disk" needs Linux or macOS (flock): leave it out, or pack the dataset')
    folder = CacheFolder(cache.folder)
    # Decoders differ between releases, by a level at most.
    decoder = "" if cache.form == "encoded" else cv2.__version__
    parts = "\n".join((str(_VERSION), str(cache.form), decoder, source.origin))
    title = "".join(each if each.isalnum() else "_" for each in os.path.basename(source.name)) or "files"
    name = f"{title}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}"
    folder.check()
    if not folder.dataset(name).is_dir() or folder.description(name).stopped:
        folder.make()  # a complete one may lie in a folder that can only be read
    path = str(folder.dataset(name))
    opened = _opened.get(path)
    if opened is None:
        opened = _opened[path] = DiskCache(source, folder, name, cache.form, cache.most_bytes)
    opened.refresh()
    return opened


class DiskCache(FilledCache):
    """The packed copy of a dataset's files, which may not be complete yet."""

    per_process = (*FilledCache.per_process, "_source", "_reader", "_is_stored", "_is_given_up")

    def __init__(
        self,
        source: CacheableFiles,
        folder: CacheFolder,
        name: str,
        form: Form | None,
        most_bytes: int | None,
    ) -> None:
        self._count = len(source)
        self._origin = source.origin
        self._folder = folder
        self._name = name
        self._form = form
        self._most_bytes = most_bytes
        # Only this process starts another one to pack; a worker forked from it does not.
        self._owner = os.getpid()
        super().__init__(CacheReport("disk", form, 1.0, f"asked for: in {folder.dataset(name)}"))
        self._source: CacheableFiles | None = source

    def _prepare(self, is_unpickled: bool) -> None:
        super()._prepare(is_unpickled)
        self._source = None
        self._reader: RecordReader | None = None
        self._is_stored = np.zeros(self._count, bool)
        self._encoding: Encoding = Keep()
        # Shared with forked processes, so that only the first one to find damage warns.
        self._is_given_up = mmap.mmap(-1, 1)

    def images(
        self, positions: Positions, originals: StoredImagesAt, reducing_gap: float | None
    ) -> StoredImages:
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
        """See `SampleCache`."""
        self.refresh()
        described, total = self._folder.description(self._name), max(1, self._count)
        samples, form = described.samples or total, self._form
        ready = min(described.done, 0.99 * samples)  # complete only once it can be read
        if self._reader is not None:
            samples = ready = int(self._is_stored.sum())
            form = "decoded" if self._encoding.name == "raw" else "encoded"
        hits, misses = self._counts.hits_and_misses
        return replace(
            self._choice,
            form=form,
            share=samples / total,
            ready=ready / total,
            used_bytes=self._folder.size_bytes(self._name),
            stopped=self.failure or described.stopped,
            hits=hits,
            misses=misses,
        )

    def _check(self) -> None:
        if self.failure:
            return
        if self._is_given_up[0]:
            self._stop_reading("another process found it to be damaged")
        elif self._reader is not None:
            if os.getpid() == self._owner:
                self._why_ended()  # reaps the process once it has ended
        elif self._folder.dataset(self._name).is_dir():
            self._open()
        elif self._source is not None and os.getpid() == self._owner:
            self._fill(self._source)

    def hold(self, positions: Positions) -> NDArray[np.bool_]:
        """See `FilledCache`."""
        is_held: NDArray[np.bool_] = self._is_stored[positions]
        self._counts.add(is_held)
        return is_held

    def _images(self, positions: Positions, reducing_gap: float | None) -> StoredImages:
        assert self._reader is not None
        self._reader.verify_records(positions)
        return RecordImages(self._reader, self._encoding, positions, reducing_gap, "orientation")

    def _open(self) -> None:
        """Open the complete copy for reading; remove it if it was found to be damaged."""
        if self._folder.description(self._name).stopped:
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
            encoding = encoding_named(image.encoding or "keep")
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
        self._folder.note_use(self._name)
        self._reader, self._encoding, self._is_stored = reader, encoding, is_stored

    def _require_origin(self, reader: RecordReader) -> None:
        details = reader.manifest.made.get("details")
        found = details.get("origin") if isinstance(details, dict) else None
        if found != self._origin:
            raise FormatError(
                f"{reader.folder}: must be made of the files with the digest {self._origin}, it names {found}"
            )

    def _fill(self, source: CacheableFiles) -> None:
        """Start the process that makes the copy, unless another one does."""
        # Imported here, because packing takes time to import, and a complete copy does not need it.
        from fastload.datasets.cache.disk_filling import fill_or_give_up

        if self._process is not None:
            reason = self._why_ended()
            if reason is not None and not self._folder.dataset(self._name).is_dir():
                stopped = self._folder.description(self._name).stopped
                self.failure = stopped or f"{reason}; the next run resumes it"
            return
        try:
            lock = self._folder.lock(self._name)
        except OSError as error:
            self.failure = f"its lock cannot be used ({error})"
            return
        if lock is None:
            return
        try:
            if not self._folder.dataset(self._name).is_dir():
                job = source, self._folder, self._name, self._form, self._most_bytes
                self._start(fill_or_give_up, job, lock.fileno())
        finally:
            lock.release()  # the process holds it now

    def _stop_reading(self, reason: str) -> None:
        self.failure = reason
        self._reader = None
        self._is_stored = np.zeros(self._count, bool)

    def _give_up(self, error: Exception) -> None:
        """Read files from now on; the next process that opens a damaged copy makes a new one."""
        self._stop_reading(str(error))
        if isinstance(error, (DamageError, ValueError)) and self._folder.dataset(self._name).is_dir():
            with contextlib.suppress(OSError):
                self._folder.update(self._name, stopped=self.failure)
        if not self._is_given_up[0]:
            self._is_given_up[0] = 1
            warnings.warn(
                f"the cache on the disk is no longer used, and files are read instead: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
