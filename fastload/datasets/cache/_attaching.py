"""Opening of a dataset's cache, as requested or as chosen by `auto`, and the report of its state."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fastload.datasets.cache._choose import CacheKind, CacheReport, Form, no_cache
from fastload.datasets.cache._limits import Room, memory_margin, memory_room, tmpfs_room
from fastload.datasets.cache._registry import StoreFolder
from fastload.datasets.cache.layout import Layout
from fastload.datasets.cache.opening import DEFAULT_PARENT, Opening, can_cache, store_folder
from fastload.datasets.cache.options import Cache
from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.system.units import format_size

if TYPE_CHECKING:
    from fastload.datasets._batch_source import StoredImages, StoredImagesAt
    from fastload.datasets.cache._records import CachedRecords
    from fastload.datasets.cache.files import CachedFiles
    from fastload.transforms.geometry import Ints

# The version of the store format: increased when the layout or the meaning of a key changes.
_STORE_VERSION = 4

# The factor by which an estimate from samples of different sizes is raised. Unwritten memory costs nothing.
_RESERVE = 1.25


@dataclass(frozen=True, slots=True)
class Extent:
    """Size of a dataset: the bytes of all its samples, exact or slightly overestimated."""

    identity: str  # differs if the location or the content differs
    samples: int
    stored_bytes: int  # images as stored
    decoded_bytes: int  # images as pixels
    other_bytes: int  # all other fields
    fixed_bytes: int  # the fixed-size columns of one sample
    paths: tuple[str, ...]
    can_be_decoded: bool = True  # False if the images are stored as pixels

    def size_bytes(self, form: Form) -> int:
        """Return the size of a store of all samples."""
        return (self.stored_bytes if form == "encoded" else self.decoded_bytes) + self.other_bytes


def estimated_bytes(sampled: Sequence[int], count: int) -> int:
    """Estimate the bytes of `count` samples from those of some."""
    if not sampled:
        return 0
    return int(sum(sampled) / len(sampled) * count * (1 if len(set(sampled)) == 1 else _RESERVE))


@dataclass(frozen=True, slots=True)
class OpenCache:
    """An open cache, except on a disk: the choice, and the samples read through a store, if it has one."""

    choice: CacheReport
    samples: CachedRecords | CachedFiles | None = None

    def refresh(self) -> None:
        """Ensure that missing samples are read in the background."""
        if self.samples is not None:
            self.samples.filler.ensure_running(self.samples)

    def images(self, positions: Ints, stored: StoredImagesAt, reducing_gap: float | None) -> StoredImages:
        """Return the images at some positions; `stored` reads them through the store itself."""
        return stored(positions)

    def prefetch(self, indices: Ints) -> Ints:
        """Return the samples that must be read from the disk."""
        return indices if self.samples is None else self.samples.missing(indices)

    def report(self) -> CacheReport:
        samples = self.samples
        if samples is None:
            return self.choice
        store, (hits, misses) = samples.store, samples.counts.hits_and_misses
        return replace(
            self.choice,
            ready=store.ready / max(1, store.count),
            used_bytes=store.used_bytes,
            stopped=store.why_closed or samples.filler.failure,
            hits=hits,
            misses=misses,
        )


def attach(
    cache: Cache,
    extent: Extent,
    through_store: Callable[[Opening], CachedRecords | CachedFiles],
    choice: CacheReport | None = None,
    room: Room = memory_room,
) -> OpenCache:
    """Open a dataset's cache; raise OptionError if the requested one is not possible here.

    `through_store` opens a store and returns the samples read through it; `choice` is that of `auto`.
    """
    choice = choice or _explicit_choice(cache)
    if choice.kind is None or choice.kind == "device" or choice.kind == "disk":
        return OpenCache(choice)
    form: Form = cache.form or choice.form or "encoded"
    if not extent.can_be_decoded:
        form = "encoded"  # the stored bytes are pixels already
    kind = choice.kind
    folder = store_folder(cache.folder, holds_data=kind == "tmpfs")
    parent = os.path.dirname(folder)
    room_bytes, bound = room(), f"{format_size(memory_margin())} of the memory must stay free"
    if kind == "tmpfs" and tmpfs_room(parent) < room_bytes:
        room_bytes, bound = tmpfs_room(parent), f"a tenth of the file system of {parent} must stay free"
    needed = extent.size_bytes(form)
    capacity = min(needed, room_bytes - Layout(extent.samples, extent.fixed_bytes, 0).size_bytes)
    if capacity <= 0:
        return OpenCache(no_cache(f"{bound}, which leaves no room"))
    layout = Layout(extent.samples, extent.fixed_bytes, capacity)
    opening = Opening(kind, form, folder, _key(kind, form, extent.identity), layout, room)
    try:
        samples = through_store(opening)
    except OSError as error:
        return OpenCache(no_cache(f"it could not be opened ({error.strerror})"))
    share = min(1.0, samples.store.layout.capacity_bytes / max(1, needed))
    return OpenCache(replace(choice, form=form, share=share), samples)


def attach_best(
    cache: Cache,
    extent: Extent,
    through_store: Callable[[Opening], CachedRecords | CachedFiles],
    choose: Callable[[], CacheReport],
    room: Room,
) -> OpenCache:
    """Open the cache of `auto`: that of other processes, else the one that `choose` returns, else none.

    Raises OptionError only for a folder that the user named.
    """
    try:
        return attach(cache, extent, through_store, find_shared(cache, extent) or choose(), room)
    except OptionError as error:  # /dev/shm cannot be written to, or another user has prepared the place
        if cache.folder is not None:
            raise
        return OpenCache(no_cache(str(error)))


def find_shared(cache: Cache, extent: Extent) -> CacheReport | None:
    """Return the choice by which other processes of this user cache the dataset now; None if none does.

    If each rank measured by itself, ranks could choose differently, and would measure a busy disk.
    """
    kinds: tuple[CacheKind, ...] = ("tmpfs",) if cache.folder is not None else ("ram", "tmpfs")
    forms: tuple[Form, ...] = ("encoded", "decoded") if cache.form is None else (cache.form,)
    for kind in kinds if can_cache() else ():
        if cache.folder is None and kind == "tmpfs" and not tmpfs_room(DEFAULT_PARENT):
            continue
        registry = StoreFolder(store_folder(cache.folder, holds_data=kind == "tmpfs"))
        for form in forms:
            if registry.is_used(_key(kind, form, extent.identity)):
                return CacheReport(kind, form, 1.0, "another of your processes chose it for this dataset")
    return None


def _explicit_choice(cache: Cache) -> CacheReport:
    """Return the user's choice; raise OptionError if it is not possible on this system."""
    if cache.kind == "device":
        reason = "asked for: a DataLoader with device= holds the pixels there"
        return CacheReport("device", "decoded", 1.0, reason)
    if not can_cache():
        raise OptionError(f'cache="{cache.kind}" needs Linux (memfd, posix_fallocate, /proc): leave it out')
    return CacheReport("ram" if cache.kind == "ram" else "tmpfs", cache.form or "encoded", 1.0, "asked for")


def _key(kind: str, form: Form, identity: str) -> str:
    """Return 32 hexadecimal digits that distinguish a store from any other."""
    decoder = cv2.__version__ if form == "decoded" else ""
    parts = "\n".join((str(_STORE_VERSION), kind, form, decoder, identity))
    return hashlib.blake2b(parts.encode(errors="surrogateescape"), digest_size=16).hexdigest()
