"""Filling of a disk cache: packing of its files in a process of its own.

The process exits at most one chunk after the process that started it. If it is interrupted, the next such
process reuses the finished shards; if it has to give up, it removes them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.cache._choose import Form
from fastload.datasets.cache.filling import IsWanted
from fastload.errors import FastloadError, PackError, printable
from fastload.images.jpegtran import find_jpegtran
from fastload.packing.job import pack
from fastload.packing.options import DEFAULT_SHARD_BYTES, estimate_stats
from fastload.packing.result import PackProgress
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder
from fastload.system.memory import available_memory_bytes
from fastload.system.units import format_size

# Estimates of a sample's stored size, as a factor for its image and bytes for its columns, and of a shard's
# metadata. Tiles make photos of 110 KB 0.4 % larger; the mean size of 64 images is within a tenth of the true
# one.
_ENCODED_GROWTH, _DECODED_GROWTH, _COLUMN_BYTES, _METADATA_BYTES = 1.02, 1.1, 128, 8192

# Small shards lose little when filling is interrupted, but many shards take time to open.
_LEAST_SHARD_BYTES = 16 << 20
_MOST_SHARDS = 256

# The share of the available memory that the page cache can be expected to hold of the copy, and the share of
# the free room that pixels may take if the user gives no size.
_MEMORY_SHARE = _ROOM_SHARE = 0.5


def fill_or_give_up(
    source: CacheableFiles,
    folder: CacheFolder,
    name: str,
    form: Form | None,
    most_bytes: int | None,
    lock: int,
    is_wanted: IsWanted,
) -> None:
    """Fill a cache in a process of its own, which has inherited the descriptor of the cache's lock."""
    os.umask(0o077)  # a copy that others can write to is never read
    try:
        fill(source, folder, name, form, most_bytes, is_wanted)
    except (FastloadError, OSError, MemoryError) as error:
        folder.drop_unfinished(name)
        reason = str(error) or type(error).__name__
        with contextlib.suppress(OSError):
            folder.update(name, done=0, stopped=reason)
        outcome = "is given up, and training goes on without it"
        sys.stderr.write(printable(f"fastload: the cache of {source.name} {outcome}: {reason}") + "\n")
        sys.exit(1)


def fill(
    source: CacheableFiles,
    folder: CacheFolder,
    name: str,
    form: Form | None,
    most_bytes: int | None,
    is_wanted: IsWanted,
) -> None:
    """Pack as many files as there is room for; the caller holds the cache's lock.

    If `form` is None, pixels are stored where they fit into memory. Raises PackError if there is no room, and
    SystemExit as soon as the cache is no longer wanted.
    """
    if not len(source):
        raise PackError(f"{source.name}: there are no files to cache")
    folder.update(name, dataset=source.name, total=len(source))
    encode, sizes = _encoding_of(source, folder, name, form, most_bytes)
    ends = sizes.cumsum() + _METADATA_BYTES
    can_fit = most_bytes is None or most_bytes >= ends[0]  # if not, removing other caches is of no use
    room = folder.make_room(name, int(ends[-1]), most_bytes) if can_fit else 0
    count = int(np.searchsorted(ends, room, side="right"))
    advice = "allow a larger size, or name a folder on another disk"
    if not count:
        raise PackError(f"{folder.path}: it needs {format_size(ends[-1])}, and there is no room: {advice}")
    total, size_bytes = len(source), int(ends[count - 1])
    folder.describe(name, dataset=source.name, samples=count, total=total, encode=encode, bytes=size_bytes)

    def check(progress: PackProgress) -> None:
        if not is_wanted():
            raise SystemExit(0)
        folder.update(name, done=progress.records)
        if folder.room_for(name, most_bytes) < folder.entry(name).size_bytes:
            raise PackError(f"{folder.path}: other files have taken the room that it needs: {advice}")

    shard_bytes = min(DEFAULT_SHARD_BYTES, max(_LEAST_SHARD_BYTES, size_bytes // _MOST_SHARDS))
    packed = pack(
        source.part(count),
        folder.dataset(name),
        encode=encode,
        shard_size=shard_bytes,
        on_error="keep",
        progress=check,
    )
    stored = count - sum(len(split.kept) for split in packed.splits)
    folder.update(name, samples=stored, done=stored)


def _encoding_of(
    source: CacheableFiles,
    folder: CacheFolder,
    name: str,
    form: Form | None,
    most_bytes: int | None,
) -> tuple[str, NDArray[np.float64]]:
    """Return the lossless encoding of the images, and the bytes that each of them takes."""
    described = folder.description(name)
    encode = described.encode
    mean_pixels = estimate_stats(source, None).mean_pixels
    decoded = np.full(len(source), _DECODED_GROWTH * 3 * mean_pixels + _COLUMN_BYTES)
    # A cache whose filling was interrupted continues with its encoding.
    if encode not in ("keep", "tiled", "raw") or described.stopped:
        encode = "keep" if find_jpegtran() is None else "tiled"
        if form is None:
            room = folder.room_for(name, most_bytes)
            form = form_that_fits(decoded.sum(), room if most_bytes is not None else int(_ROOM_SHARE * room))
        encode = "raw" if form == "decoded" else encode
    if encode == "raw":
        return encode, decoded
    return encode, _ENCODED_GROWTH * source.files.sizes_bytes.clip(min=0) + _COLUMN_BYTES


def form_that_fits(
    decoded_bytes: float, room_bytes: int, memory_bytes: Callable[[], int] = available_memory_bytes
) -> Form:
    """Return the form of a cache: pixels if they fit into the room, and memory can hold them.

    Pixels need no decoding, but take five to ten times the room of encoded photos: read from a disk, they
    come later than encoded ones can be decoded.
    """
    fits = decoded_bytes <= min(room_bytes, _MEMORY_SHARE * memory_bytes())
    return "decoded" if fits else "encoded"
