"""Choice of what a cache on a disk stores: pixels where the disk keeps up with them, else the encoded images.

Pixels save decoding, and take five to ten times the room of photos. They pay if they are fetched at least as
fast as all CPUs decode the encoded images. Both forms are lossless.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator

from fastload.errors import DecodeError
from fastload.images.decode import decode
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.protocol import evenly_spaced
from fastload.system.cpus import usable_cpus
from fastload.system.memory import available_memory_bytes
from fastload.system.read_speed import measure_reading

# Images decoded to measure how long that takes: about 20 ms of photos.
_DECODED = 16

# A training crop decodes about half of an image in tiles.
_TILED_SHARE = 0.5

# The share of the available memory that the page cache may be expected to keep for the cache, and the share
# of the free room that pixels may take if the user states no size.
_MEMORY_SHARE = _ROOM_SHARE = 0.5

# The file that is read to measure a disk, and the time for that.
_TRIAL_BYTES = 64 << 20
_MOST_S = 1.0


def stores_pixels(
    source: CacheableFiles,
    folder: str | os.PathLike[str],
    decoded_bytes: float,
    room_bytes: int,
    *,
    has_size: bool,
    is_tiled: bool,
) -> bool:
    """Return True if a cache with this room should store pixels, which take `decoded_bytes` in all.

    `has_size` says that the user has stated the room, `is_tiled` that encoded images have tiles. The disk is
    measured with a file in `folder`.
    """
    decode_s = _decode_cpu_s(source) * (_TILED_SHARE if is_tiled else 1.0)
    return is_decoded_faster(
        len(source),
        decoded_bytes,
        room_bytes if has_size else int(_ROOM_SHARE * room_bytes),
        available_memory_bytes(),
        usable_cpus() / max(decode_s, 1e-9),
        lambda: _disk_bytes_per_s(folder, int(decoded_bytes / len(source))),
    )


def is_decoded_faster(
    samples: int,
    decoded_bytes: float,
    room_bytes: int,
    memory_bytes: int,
    encoded_per_s: float,
    disk_bytes_per_s: Callable[[], float],
) -> bool:
    """Return True if the pixels of all samples have room, and are fetched fast enough.

    `memory_bytes` are available to the page cache, `encoded_per_s` samples are decoded by all CPUs. The disk
    is measured only if later epochs read it.
    """
    if not samples or decoded_bytes > room_bytes:
        return False
    if decoded_bytes <= _MEMORY_SHARE * memory_bytes:
        return True
    return disk_bytes_per_s() * samples / decoded_bytes >= encoded_per_s


def _decode_cpu_s(source: CacheableFiles) -> float:
    """Return the mean CPU time of decoding an image."""
    times = []
    for data in _sampled(source):
        began = time.process_time()
        decode(data)
        times.append(time.process_time() - began)
    return sum(times) / max(1, len(times))


def _sampled(source: CacheableFiles) -> Iterator[bytes]:
    for index in evenly_spaced(len(source), _DECODED):
        image = source.read(index).image
        with contextlib.suppress(DecodeError):
            if isinstance(image, bytes) and image:
                decode(image)  # the first time, memory is allocated
                yield image


def _disk_bytes_per_s(folder: str | os.PathLike[str], record_bytes: int) -> float:
    """Return how fast records of a new file are read from the disk; 0 if that cannot be measured."""
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder) as file:
        block = os.urandom(1 << 20)
        for _ in range(_TRIAL_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        reading = measure_reading([file.name], max(1, record_bytes), most_s=_MOST_S)
        if reading.is_cold:
            return reading.bytes_per_s
    return 0.0
