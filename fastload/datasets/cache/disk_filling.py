"""Filling of a disk cache: packing of its files in a process of its own.

The process exits at most one chunk after the process that started it. If it is interrupted, the next such
process reuses the finished shards; if it has to give up, it removes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from fastload.datasets.cache.options import Form
from fastload.errors import FastloadError, PackError, printable
from fastload.images.jpegtran import find_jpegtran
from fastload.images.pixel_types import RGB, PixelType
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.pixel_type import first_pixel_type
from fastload.system.cache_folder import CacheFolder
from fastload.system.memory import available_memory_bytes
from fastload.system.signals import set_worker_signals
from fastload.system.units import format_size

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {__name__} import run; run(*map(int, sys.argv[2:]))"
)

# With as many busy workers as CPUs, the process gets a quarter of one (Linux's weights are 335 to 1024).
_NICENESS = 5

# It removes its unfinished files within a second.
_TERMINATION_LIMIT_S = 5.0

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


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """Place of a packed copy, its form, and its largest size.

    None: the form that fits best, and the size that the disk has to spare.
    """

    folder: CacheFolder
    name: str
    form: Form | None = None
    most_bytes: int | None = None

    @property
    def dataset(self) -> Path:
        """The packed dataset, which exists once it is complete."""
        return self.folder.dataset(self.name)


def start_filling(
    owner: object, source: CacheableFiles, place: CopyPlace, lock: int
) -> subprocess.Popen[bytes]:
    """Start a process that packs files, and inherits the descriptor of their cache's lock.

    It is a new interpreter, at low priority: a thread could hold locks while the loader forks its workers,
    and would compete with training for the GIL. It is terminated when `owner` is finalized. Raises OSError if
    no process can be started.
    """
    with tempfile.TemporaryFile() as file:
        pickle.dump((source, place), file)
        file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), str(os.getpid()), str(lock)],
            stdin=file,
            stdout=subprocess.DEVNULL,
            pass_fds=(lock,),
        )
    weakref.finalize(owner, _end, process, os.getpid())
    return process


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Terminate a process, which may first remove its unfinished files; kill it if it does not end."""
    if os.getpid() != owner:
        process.returncode = 0  # a forked child's copy
        return
    with contextlib.suppress(OSError):
        process.terminate()
    try:
        process.wait(_TERMINATION_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(parent: int, lock: int) -> None:
    """Run in the started process: fill the cache whose files and place are pickled on stdin."""
    set_worker_signals()  # on Ctrl-C it ends with the process that started it
    os.set_inheritable(lock, False)
    os.umask(0o077)  # a copy that others can write to is never read
    lower_priority()
    source, place = pickle.load(sys.stdin.buffer)
    try:
        fill_copy(source, place, lambda: os.getppid() == parent)
    except (FastloadError, OSError, MemoryError) as error:
        place.folder.drop_unfinished(place.name)
        reason = str(error) or type(error).__name__
        with contextlib.suppress(OSError):
            place.folder.describe(place.name, done=0, stopped=reason)
        outcome = "is given up, and training goes on without it"
        sys.stderr.write(printable(f"fastload: the cache of {source.name} {outcome}: {reason}") + "\n")
        sys.exit(1)


def lower_priority() -> None:
    """Give the training's processes precedence in the use of CPU and disk."""
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process()
        process.nice(psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else _NICENESS)
        if sys.platform == "linux":
            process.ionice(psutil.IOPRIO_CLASS_IDLE)


def fill_copy(source: CacheableFiles, place: CopyPlace, is_wanted: Callable[[], bool]) -> None:
    """Pack as many files as there is room for; the caller holds the cache's lock.

    Without a form, pixels are stored where they fit into memory. Raises PackError if there is no room, and
    SystemExit as soon as the cache is no longer wanted.
    """
    # Imported here, because packing takes time to import, and a complete copy does not need it.
    from fastload.packing.encoding.options import DEFAULT_SHARD_BYTES, estimate_stats
    from fastload.packing.job import pack
    from fastload.packing.result import PackProgress

    folder, name, most_bytes = place.folder, place.name, place.most_bytes
    if not len(source):
        raise PackError(f"{source.name}: there are no files to cache")
    folder.describe(name, dataset=source.name, total=len(source))
    pixel_type, mean_pixels = first_pixel_type([source]), estimate_stats([source], None).mean_pixels
    encode, sizes = _encoding_of(source, place, pixel_type, mean_pixels)
    ends = sizes.cumsum() + _METADATA_BYTES
    can_fit = most_bytes is None or most_bytes >= ends[0]  # if not, removing other caches is of no use
    room = folder.make_room(name, int(ends[-1]), most_bytes) if can_fit else 0
    count = int(np.searchsorted(ends, room, side="right"))
    advice = "allow a larger size, or name a folder on another disk"
    if not count:
        raise PackError(f"{folder.path}: it needs {format_size(ends[-1])}, and there is no room: {advice}")
    size_bytes = int(ends[count - 1])
    folder.describe(name, samples=count, done=0, encode=encode, bytes=size_bytes, stopped="")

    def check(progress: PackProgress) -> None:
        if not is_wanted():
            raise SystemExit(0)
        folder.describe(name, done=progress.records)
        if folder.room_for(name, most_bytes) < folder.entry(name).size_bytes:
            raise PackError(f"{folder.path}: other files have taken the room that it needs: {advice}")

    shard_bytes = min(DEFAULT_SHARD_BYTES, max(_LEAST_SHARD_BYTES, size_bytes // _MOST_SHARDS))
    packed = pack(
        source.part(count),
        place.dataset,
        encode=encode,
        shard_size=shard_bytes,
        on_error="keep",
        progress=check,
    )
    stored = count - sum(len(split.kept) for split in packed.splits)
    folder.describe(name, samples=stored, done=stored)


def _encoding_of(
    source: CacheableFiles, place: CopyPlace, pixel_type: PixelType, mean_pixels: float
) -> tuple[str, NDArray[np.float64]]:
    """Return the lossless encoding of the images, and the bytes that each of them takes."""
    form, most_bytes = place.form, place.most_bytes
    described = place.folder.description(place.name)
    encode = described.encode
    pixel_bytes = _DECODED_GROWTH * pixel_type.pixel_bytes * mean_pixels
    decoded = np.full(len(source), pixel_bytes + _COLUMN_BYTES)
    # A cache whose filling was interrupted continues with its encoding.
    if encode not in ("keep", "tiled", "raw") or described.stopped:
        encode = "tiled" if pixel_type == RGB and find_jpegtran() is not None else "keep"
        if form is None:
            room = place.folder.room_for(place.name, most_bytes)
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
