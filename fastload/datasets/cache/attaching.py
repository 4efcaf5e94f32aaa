"""Opening of a dataset's cache: the one that is asked for, or the one that `auto` chooses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Literal

from fastload.datasets.cache._choose import CacheKind, CacheReport, Form, no_cache
from fastload.datasets.cache._limits import Room, memory_margin, memory_room, tmpfs_room
from fastload.datasets.cache.disk import open_disk_cache
from fastload.datasets.cache.layout import Layout
from fastload.datasets.cache.opening import Opening, can_cache, is_used, store_folder
from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.originals import Originals
from fastload.datasets.cache.sample_cache import SampleCache
from fastload.datasets.cache.stored import RecordLayout, StoreCache
from fastload.errors import OptionError
from fastload.images.opencv import cv2
from fastload.system.units import format_size

# The version of the store format: increased when the layout or the meaning of a key changes.
_STORE_VERSION = 6


def open_cache(
    cache: Cache, originals: Originals, choose: Callable[[], CacheReport], room: Room = memory_room
) -> SampleCache:
    """Open the cache that is asked for; for `auto`, that of other processes, or else the one of `choose`.

    Raises OptionError if it is not possible here; for `auto`, only because of a folder that the user named.
    """
    if cache.kind == "disk":
        return open_disk_cache(originals.files(), cache)
    if cache.kind == "device":
        reason = "asked for: a DataLoader with device= holds the pixels there"
        return SampleCache(CacheReport("device", "decoded", 1.0, reason))
    if cache.kind != "auto":
        return _open_store(cache, _explicit_choice(cache), originals, room)
    try:
        choice = _find_shared(cache, originals) or choose()
        if choice.kind in (None, "device"):
            return SampleCache(choice)
        return _open_store(cache, choice, originals, room)
    except OptionError as error:  # /dev/shm cannot be written to, or another user has prepared the place
        if cache.folder is not None:
            raise
        return SampleCache(no_cache(str(error)))


def _find_shared(cache: Cache, originals: Originals) -> CacheReport | None:
    """Return the choice by which other processes of this user cache the dataset now; None if none does.

    If each rank measured by itself, ranks could choose differently, and would measure a busy disk.
    """
    forms: tuple[Form, ...] = ("encoded", "decoded") if cache.form is None else (cache.form,)
    kind: CacheKind = "ram" if cache.folder is None else "tmpfs"
    folder = store_folder(cache.folder)
    for form in forms if can_cache() else ():
        if is_used(folder, _key(form, originals)):
            return CacheReport(kind, form, 1.0, "another of your processes chose it for this dataset")
    return None


def _explicit_choice(cache: Cache) -> CacheReport:
    """Return the user's choice; raise OptionError if it is not possible on this system."""
    if not can_cache():
        raise OptionError(f'cache="{cache.kind}" needs Linux (memfd, posix_fallocate, /proc): leave it out')
    return CacheReport("ram" if cache.kind == "ram" else "tmpfs", cache.form, 1.0, "asked for")


def _open_store(cache: Cache, choice: CacheReport, originals: Originals, room: Room) -> SampleCache:
    kind: Literal["ram", "tmpfs"] = "tmpfs" if choice.kind == "tmpfs" else "ram"
    form: Form = (cache.form or choice.form or "encoded") if originals.can_be_decoded else "encoded"
    folder = store_folder(cache.folder, holds_data=kind == "tmpfs")
    parent = os.path.dirname(folder)
    room_bytes, bound = room(), f"{format_size(memory_margin())} of the memory must stay free"
    if kind == "tmpfs" and tmpfs_room(parent) < room_bytes:
        room_bytes, bound = tmpfs_room(parent), f"a tenth of the file system of {parent} must stay free"
    needed, fixed_bytes = originals.size_bytes(form), RecordLayout(originals).fixed_bytes
    capacity = min(needed, room_bytes - Layout(originals.samples, fixed_bytes, 0).size_bytes)
    if capacity <= 0:
        return SampleCache(no_cache(f"{bound}, which leaves no room"))
    layout = Layout(originals.samples, fixed_bytes, capacity)
    opening = Opening(kind, form, folder, _key(form, originals), layout, room)
    try:
        return StoreCache(originals, opening, choice, needed)
    except OSError as error:
        return SampleCache(no_cache(f"it could not be opened ({error.strerror})"))


def _key(form: Form, originals: Originals) -> str:
    """Return 32 hexadecimal digits that distinguish a store from any other."""
    decoder = cv2.__version__ if form == "decoded" else ""
    parts = "\n".join((str(_STORE_VERSION), form, decoder, originals.identity()))
    return hashlib.blake2b(parts.encode(errors="surrogateescape"), digest_size=16).hexdigest()
