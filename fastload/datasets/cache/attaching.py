"""A dataset's cache: opened as asked for or chosen, filled in the background, reported."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastload.datasets.cache.choose import CacheChoice, Form, Kind, no_cache
from fastload.datasets.cache.filling import Filler
from fastload.datasets.cache.folder import DEFAULT_PARENT, StoreFolder, store_folder
from fastload.datasets.cache.layout import Layout
from fastload.datasets.cache.limits import CacheLimits, tmpfs_room
from fastload.datasets.cache.opening import Opening, can_cache
from fastload.datasets.cache.options import Cache
from fastload.errors import OptionError
from fastload.system.units import size as size_text

if TYPE_CHECKING:
    from fastload.datasets.cache.files import KeptFiles
    from fastload.datasets.cache.records import KeptRecords

# The version of stores: increased when their layout changes, or what a key stands for.
_STORE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a dataset.

    Attributes:
        identity: Identifies its place and content: another one if any byte differs.
        samples: The number of samples.
        stored_bytes: All images as stored, or a little more.
        decoded_bytes: All images as pixels, or a little more.
        other_bytes: All other fields.
        fixed_bytes: What each sample has in columns of fixed size.
        paths: Its files.
        can_be_decoded: False if the images are stored as pixels.
    """

    identity: str
    samples: int
    stored_bytes: int
    decoded_bytes: int
    other_bytes: int
    fixed_bytes: int
    paths: tuple[str, ...]
    can_be_decoded: bool = True

    def size_bytes(self, form: Form) -> int:
        """Return the size of a store of all samples."""
        return (self.stored_bytes if form == "encoded" else self.decoded_bytes) + self.other_bytes


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The state of a dataset's cache.

    Attributes:
        kind: `ram`, `tmpfs`, `device`; None: no cache.
        form: `encoded` or `decoded`.
        share: The share of the samples for which there is room: the hit ratio of later epochs.
        ready: The share of the samples that is stored by now.
        used_bytes: The memory that these take.
        reason: Why this cache was chosen.
        stopped: Why no more is stored; "" while there is room.
        hits: Samples that this process and the workers forked from it have read from the cache.
        misses: Samples that they have read from the disk.
    """

    kind: str | None
    form: Form | None
    share: float
    ready: float
    used_bytes: int
    reason: str
    stopped: str
    hits: int
    misses: int


class OpenCache:
    """A dataset's open cache: the choice, and the samples through a store, if there is one."""

    def __init__(self, choice: CacheChoice, samples: KeptRecords | KeptFiles | None) -> None:
        self.choice = choice
        self.samples = samples
        self._filler = None if samples is None else Filler(samples)

    def __getstate__(self) -> dict[str, Any]:
        return {"choice": self.choice, "samples": self.samples}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.choice, self.samples = state["choice"], state["samples"]
        self._filler = None if self.samples is None else Filler(self.samples)

    def fill(self) -> None:
        """Have the missing samples read in the background; to be called for every batch."""
        if self._filler is not None:
            self._filler.ensure_running()

    def stop(self) -> None:
        """End the reading in the background."""
        if self._filler is not None:
            self._filler.stop()

    def report(self) -> CacheReport:
        """Return the state of the cache."""
        choice, samples = self.choice, self.samples
        if samples is None or self._filler is None:
            return CacheReport(choice.kind, choice.form, choice.share, 0.0, 0, choice.reason, "", 0, 0)
        store = samples.store
        return CacheReport(
            kind=choice.kind,
            form=choice.form,
            share=choice.share,
            ready=store.ready / max(1, store.count),
            used_bytes=store.used_bytes,
            reason=choice.reason,
            stopped=store.why_closed or self._filler.trouble,
            hits=samples.counter.hits,
            misses=samples.counter.misses,
        )


def attach(
    cache: Cache,
    extent: Extent,
    keep: Callable[[Form, Opening], KeptRecords | KeptFiles],
    choice: CacheChoice | None = None,
    limits: CacheLimits | None = None,
) -> OpenCache:
    """Open a dataset's cache; raise OptionError if what was asked for is not possible here.

    `keep` returns the samples through a store, `choice` is what was chosen for `auto`.
    """
    choice = choice or _explicit_choice(cache)
    if choice.form is not None and cache.form is not None:
        choice = replace(choice, form=cache.form)
    if choice.kind is None or choice.kind == "device":
        return OpenCache(choice, None)
    form: Form = choice.form or "encoded"
    if form == "decoded" and not extent.can_be_decoded:
        form = "encoded"  # which are pixels already
    kind, limits = choice.kind, limits or CacheLimits()
    folder = store_folder(cache.folder, holds_data=kind == "tmpfs")
    parent = os.path.dirname(folder)
    room, bound = limits.room(), f"{size_text(limits.margin())} of the memory must stay free"
    if kind == "tmpfs" and tmpfs_room(parent) < room:
        room, bound = tmpfs_room(parent), f"a tenth of the file system of {parent} must stay free"
    needed = extent.size_bytes(form)
    capacity = min(needed, room - Layout(extent.samples, extent.fixed_bytes, 0).size_bytes)
    if capacity <= 0:
        return OpenCache(no_cache(f"{bound}, and no more is"), None)
    layout = Layout(extent.samples, extent.fixed_bytes, capacity)
    try:
        samples = keep(form, Opening(kind, folder, _key(kind, form, extent.identity), layout, limits))
    except OSError as error:
        return OpenCache(no_cache(f"it could not be opened ({error.strerror})"), None)
    share = min(1.0, samples.store.capacity_bytes / max(1, needed))
    return OpenCache(replace(choice, form=form, share=share), samples)


def in_use(cache: Cache, extent: Extent) -> CacheChoice | None:
    """Return what other processes of this user have chosen for the dataset, if they use a cache of it now.

    Ranks that measured for themselves could choose differently, and would measure a disk that others use.
    """
    kinds: tuple[Kind, ...] = ("tmpfs",) if cache.folder is not None else ("ram", "tmpfs")
    forms: tuple[Form, ...] = ("encoded", "decoded") if cache.form is None else (cache.form,)
    for kind in kinds if can_cache() else ():
        if cache.folder is None and kind == "tmpfs" and not tmpfs_room(DEFAULT_PARENT):
            continue
        place = StoreFolder(store_folder(cache.folder, holds_data=kind == "tmpfs"))
        for form in forms:
            if place.is_used(_key(kind, form, extent.identity)):
                return CacheChoice(kind, form, 1.0, "another process of yours has chosen it for this dataset")
    return None


def _explicit_choice(cache: Cache) -> CacheChoice:
    """Return the user's choice; raise OptionError if it is not possible on this system."""
    if cache.kind == "device":
        reason = "asked for: a DataLoader with device= holds the pixels there"
        return CacheChoice("device", "decoded", 1.0, reason)
    if not can_cache():
        raise OptionError(f'cache="{cache.kind}" needs Linux (memfd, posix_fallocate, /proc): leave it out')
    return CacheChoice("ram" if cache.kind == "ram" else "tmpfs", cache.form or "encoded", 1.0, "asked for")


def _key(kind: str, form: Form, identity: str) -> str:
    decoder = ""
    if form == "decoded":
        from fastload.images.opencv import cv2

        decoder = cv2.__version__
    parts = "\n".join((str(_STORE_VERSION), kind, form, decoder, identity))
    return hashlib.blake2b(parts.encode(errors="surrogateescape"), digest_size=16).hexdigest()
