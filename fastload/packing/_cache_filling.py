"""Filling of a disk cache: packing of its files in a low-priority process beside the training.

The process holds the cache's lock, and exits at most one chunk after the process that started it. If it is
interrupted, the next such process reuses the finished shards; if it has to give up, it removes them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable
from typing import Literal

import numpy as np
import psutil
from numpy.typing import NDArray

from fastload.errors import FastloadError, PackError, printable
from fastload.images.jpegtran import find_jpegtran
from fastload.packing._cache_form import stores_pixels
from fastload.packing._options import DEFAULT_SHARD_BYTES
from fastload.packing.choose import estimate_stats
from fastload.packing.job import pack
from fastload.packing.result import PackProgress
from fastload.sources.cacheable import CacheableFiles
from fastload.system.cache_folder import CacheFolder
from fastload.system.signals import set_worker_signals
from fastload.system.units import format_size

# With as many busy workers as CPUs, the process gets a quarter of one (Linux's weights are 335 to 1024).
_NICENESS = 5

# Estimates of a sample's stored size, as a factor for its image and bytes for its columns, and of a shard's
# metadata. Tiles make photos of 110 KB 0.4 % larger; the mean size of 64 images is within a tenth of the true
# one.
_ENCODED_GROWTH, _DECODED_GROWTH, _COLUMN_BYTES, _METADATA_BYTES = 1.02, 1.1, 128, 8192

# Small shards lose little when filling is interrupted, but many shards take time to open.
_LEAST_SHARD_BYTES = 16 << 20
_MOST_SHARDS = 256


def run(lock: int, parent: int) -> None:
    """Fill a cache in a process of its own.

    `lock` is the descriptor of the cache's lock, `parent` the process that started this one; stdin holds the
    job.
    """
    set_worker_signals()  # on Ctrl-C it ends with the process that started it
    os.set_inheritable(lock, False)
    os.umask(0o077)  # a copy that others can write to is never read
    _lower_priority()
    source, folder, name, form, most_bytes = pickle.load(sys.stdin.buffer)
    try:
        fill(source, folder, name, form, most_bytes, lambda: os.getppid() == parent)
    except (FastloadError, OSError, MemoryError) as error:
        folder.drop_unfinished(name)
        reason = str(error) or type(error).__name__
        with contextlib.suppress(OSError):
            folder.describe(name, **{**folder.description(name), "done": 0, "stopped": reason})
        outcome = "is given up, and training goes on without it"
        sys.stderr.write(printable(f"fastload: the cache of {source.name} {outcome}: {reason}") + "\n")
        sys.exit(1)


def fill(
    source: CacheableFiles,
    folder: CacheFolder,
    name: str,
    form: Literal["encoded", "decoded"] | None,
    most_bytes: int | None,
    is_wanted: Callable[[], bool],
) -> None:
    """Pack as many files as there is room for; the caller holds the cache's lock.

    If `form` is None, pixels are stored where that is faster. Raises PackError if there is no room, and
    SystemExit as soon as the cache is no longer wanted.
    """
    if not len(source):
        raise PackError(f"{source.name}: there are no files to cache")
    folder.describe(name, **{**folder.description(name), "dataset": source.name, "total": len(source)})
    encode, sizes = _encoding_of(source, folder, name, form, most_bytes)
    ends = sizes.cumsum() + _METADATA_BYTES
    can_fit = most_bytes is None or most_bytes >= ends[0]  # if not, removing other caches is of no use
    room = folder.make_room(name, int(ends[-1]), most_bytes) if can_fit else 0
    count = int(np.searchsorted(ends, room, side="right"))
    advice = "allow a larger size, or name a folder on another disk"
    if not count:
        raise PackError(f"{folder.path}: it needs {format_size(ends[-1])}, and there is no room: {advice}")
    described = {"dataset": source.name, "samples": count, "total": len(source), "encode": encode}
    size_bytes = int(ends[count - 1])
    folder.describe(name, **described, bytes=size_bytes)

    def check(progress: PackProgress) -> None:
        if not is_wanted():
            raise SystemExit(0)
        folder.describe(name, **described, bytes=size_bytes, done=progress.records)
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
    folder.describe(name, **{**described, "samples": stored}, done=stored)


def _encoding_of(
    source: CacheableFiles,
    folder: CacheFolder,
    name: str,
    form: Literal["encoded", "decoded"] | None,
    most_bytes: int | None,
) -> tuple[str, NDArray[np.float64]]:
    """Return the lossless encoding of the images, and the bytes that each of them takes."""
    described = folder.description(name)
    encode = described.get("encode", "")
    mean_pixels = estimate_stats(source, None).mean_pixels
    decoded = np.full(len(source), _DECODED_GROWTH * 3 * mean_pixels + _COLUMN_BYTES)
    # A cache whose filling was interrupted continues with its encoding.
    if encode not in ("keep", "tiled", "raw") or "stopped" in described:
        is_tiled = find_jpegtran() is not None
        encode = "tiled" if is_tiled else "keep"
        if form is None:
            room, size, has_size = folder.room_for(name, most_bytes), decoded.sum(), most_bytes is not None
            with folder.temporary(name) as place:
                is_decoded = stores_pixels(source, place, size, room, has_size=has_size, is_tiled=is_tiled)
            form = "decoded" if is_decoded else "encoded"
        encode = "raw" if form == "decoded" else encode
    if encode == "raw":
        return encode, decoded
    return encode, _ENCODED_GROWTH * source.files.sizes_bytes.clip(min=0) + _COLUMN_BYTES


def _lower_priority() -> None:
    """Give the training's processes precedence in the use of CPU and disk."""
    os.nice(_NICENESS)
    if sys.platform == "linux":
        with contextlib.suppress(psutil.Error, OSError):
            psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
