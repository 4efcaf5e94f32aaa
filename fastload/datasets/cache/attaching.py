"""From what was asked for to a dataset's cache: decided, opened, filled in the background, reported."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastload.datasets.cache.choose import CacheChoice, Form, Kind
from fastload.datasets.cache.filling import Filler
from fastload.datasets.cache.folder import DEFAULT_PARENT, StoreFolder, store_folder
from fastload.datasets.cache.layout import Layout
from fastload.datasets.cache.limits import Limits, tmpfs_room
from fastload.datasets.cache.opening import Opening, StoreKind, can_keep, can_share_memory
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.pages import Pages
from fastload.errors import OptionError
from fastload.system.units import size as size_text

if TYPE_CHECKING:
    from fastload.datasets.cache.files import KeptFiles
    from fastload.datasets.cache.records import KeptRecords

# Of stores: whatever changes their layout, or what a key stands for, counts it up.
_STORE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Extent:
    """How large a dataset is.

    Attributes:
        identity: Stands for its place and content: another one if any byte differs.
        samples: How many there are.
        stored_bytes: All images as stored, or a little more.
        decoded_bytes: All images as pixels, or a little more.
        other_bytes: What samples have besides.
        fixed_bytes: Of that, what each has in columns of one size.
        paths: Its files.
        can_be_decoded: Whether pixels are another thing than what is stored.
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
        """What a store of all samples takes."""
        return (self.stored_bytes if form == "encoded" else self.decoded_bytes) + self.other_bytes


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What a dataset's cache is and does.

    Attributes:
        kind: `ram`, `tmpfs`, `page`, `device`; None: there is none.
        form: What is kept: `encoded` or `decoded`.
        share: Of the samples, what there is room for: the hit ratio of later epochs.
        ready: Of the samples, what is kept by now; for `page` it is not known, and 0.
        used_bytes: What that takes.
        reason: Why this was chosen.
        stopped: Why no more is kept; empty while there is room.
        hits: Samples that this process and the workers forked from it had from the cache.
        misses: Samples that they had from the disk.
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


class Attached:
    """A dataset's cache, opened.

    Args:
        choice: What was decided.
        kept: The samples through the store; None where there is none.

    Attributes:
        choice: What was decided.
        kept: See above.
    """

    def __init__(self, choice: CacheChoice, kept: KeptRecords | KeptFiles | Pages | None) -> None:
        self.choice = choice
        self.kept = kept
        self._filler = None if kept is None else Filler(kept)

    def __getstate__(self) -> dict[str, Any]:
        return {"choice": self.choice, "kept": self.kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.choice, self.kept = state["choice"], state["kept"]
        self._filler = None if self.kept is None else Filler(self.kept)

    def fill(self) -> None:
        """Sees to it that what is missing is read in the background; to be called for every batch."""
        if self._filler is not None:
            self._filler.see_to_it()

    def stop(self) -> None:
        """Ends what is done in the background."""
        if self._filler is not None:
            self._filler.stop()

    def report(self) -> CacheReport:
        """What it is and does by now."""
        choice, kept = self.choice, self.kept
        if kept is None or isinstance(kept, Pages):
            return CacheReport(choice.kind, choice.form, choice.share, 0.0, 0, choice.reason, "", 0, 0)
        store = kept.store
        trouble = self._filler.trouble if self._filler else ""
        return CacheReport(
            kind=choice.kind,
            form=choice.form,
            share=choice.share,
            ready=store.ready / max(1, store.count),
            used_bytes=store.used_bytes,
            reason=choice.reason,
            stopped=store.why_closed or trouble,
            hits=kept.tally.hits,
            misses=kept.tally.misses,
        )


def attach(
    cache: Cache,
    extent: Extent,
    keep: Callable[[Form, Opening], KeptRecords | KeptFiles],
    choice: CacheChoice | None = None,
    limits: Limits | None = None,
) -> Attached:
    """Opens a dataset's cache.

    Args:
        cache: What was asked for.
        extent: Of the dataset.
        keep: Makes the dataset's samples through a store.
        choice: What was chosen for `auto`, or by somebody else.
        limits: What must stay free of the memory.

    Raises:
        OptionError: What was asked for cannot be had here.
    """
    choice = choice or _said(cache)
    if choice.form is not None and cache.form is not None:
        choice = replace(choice, form=cache.form)
    if choice.kind is None or choice.kind == "device":
        return Attached(choice, None)
    return _opened(choice, cache, extent, keep, limits or Limits())


def in_use(cache: Cache, extent: Extent) -> CacheChoice | None:
    """What other processes of this user have chosen for the dataset, if any uses a cache of it now.

    Ranks and runs that each measured for themselves could come to different ends, and would measure the disk
    while others read from it.

    Raises:
        OptionError: The folder that was asked for is none.
    """
    kinds: tuple[Kind, ...] = ("tmpfs",) if cache.folder is not None else ("ram", "tmpfs")
    forms: tuple[Form, ...] = ("encoded", "decoded") if cache.form is None else (cache.form,)
    for kind in kinds:
        if not can_keep() or (cache.folder is None and kind == "tmpfs" and not tmpfs_room(DEFAULT_PARENT)):
            continue
        place = StoreFolder(store_folder(cache.folder, holds_data=kind == "tmpfs"))
        for form in forms:
            if place.is_used(_key(kind, form, extent.identity)):
                return CacheChoice(kind, form, 1.0, "another process of yours has chosen it for this dataset")
    return None


def _said(cache: Cache) -> CacheChoice:
    """What a user chose."""
    if cache.kind == "ram" and not can_share_memory():
        raise OptionError(
            'cache="ram" needs Linux\'s memfd and /proc: '
            'use fastload.Cache("tmpfs", folder=...), or cache="page"'
        )
    if cache.kind == "tmpfs" and not can_keep():
        raise OptionError('cache="tmpfs" needs posix_fallocate, which this system lacks: use cache="page"')
    kinds: dict[str, Kind] = {"ram": "ram", "tmpfs": "tmpfs", "page": "page", "device": "device"}
    if cache.kind == "device":
        return CacheChoice(
            "device", "decoded", 1.0, "asked for: a DataLoader with device= holds the pixels there"
        )
    return CacheChoice(kinds[cache.kind], cache.form or "encoded", 1.0, "asked for")


def _opened(
    choice: CacheChoice,
    cache: Cache,
    extent: Extent,
    keep: Callable[[Form, Opening], KeptRecords | KeptFiles],
    limits: Limits,
) -> Attached:
    form: Form = choice.form or "encoded"
    if form == "decoded" and not extent.can_be_decoded:
        form = "encoded"  # which are pixels already
    is_page = choice.kind == "page"
    kind: StoreKind = "ram" if choice.kind == "ram" or (is_page and can_share_memory()) else "tmpfs"
    folder = store_folder(cache.folder, holds_data=kind == "tmpfs" and not is_page)
    needed = extent.size_bytes(form)
    room, bound = limits.room(), f"of the memory, {size_text(limits.margin())} must stay free"
    if kind == "tmpfs" and (there := tmpfs_room(os.path.dirname(folder))) < room:
        room, bound = there, f"of the file system of {os.path.dirname(folder)}, a tenth must stay free"
    index_bytes = Layout(extent.samples, extent.fixed_bytes, 0).size_bytes
    capacity = 0 if is_page else min(needed, room - index_bytes)
    if not is_page and capacity <= 0:
        reason = f"no cache: {bound}, and no more is"
        return Attached(CacheChoice(None, None, 0.0, reason), None)
    key = _key(choice.kind or "", form, extent.identity)
    layout = Layout(0, 0, 0) if is_page else Layout(extent.samples, extent.fixed_bytes, capacity)
    opening = Opening(kind, folder, key, layout, limits)
    try:
        kept: KeptRecords | KeptFiles | Pages = (
            Pages(list(extent.paths), opening) if is_page else keep(form, opening)
        )
    except OSError as error:
        reason = f"no cache: it could not be opened ({error.strerror})"
        return Attached(CacheChoice(None, None, 0.0, reason), None)
    share = 1.0 if is_page else min(1.0, kept.store.capacity_bytes / max(1, needed))
    return Attached(replace(choice, form=form, share=share), kept)


def _key(kind: str, form: Form, identity: str) -> str:
    decoder = ""
    if form == "decoded":
        from fastload.images.opencv import cv2

        decoder = cv2.__version__
    parts = "\n".join((str(_STORE_VERSION), kind, form, decoder, identity))
    return hashlib.blake2b(parts.encode(errors="surrogateescape"), digest_size=16).hexdigest()
