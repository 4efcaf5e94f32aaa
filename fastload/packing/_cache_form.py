"""Choice of the form in which a disk cache stores images: as pixels, or encoded.

Pixels need no decoding, but take five to ten times the room of encoded photos. They are worth it if they are
fetched at least as fast as all CPUs together decode the encoded images. Both forms are lossless.
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

# The number of images that are decoded to measure the time of decoding: photos take about 20 ms in all.
_DECODED = 16

# A training crop decodes about half of a tiled image.
_TILED_SHARE = 0.5

# The share of the available memory in which the page cache can be expected to hold the cache's files, and the
# share of the free room that pixels may take if the user gives no size.
_MEMORY_SHARE = _ROOM_SHARE = 0.5

# The size of the file that is read to measure a disk, and the time limit for reading it.
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
    """Return True if a cache of at most `room_bytes` should store pixels, which take `decoded_bytes` in all.

    `has_size` means that the user gave this size, `is_tiled` that the encoded images have tiles. The disk is
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
    """Return True if the pixels of all samples fit into the room, and are fetched fast enough.

    `memory_bytes` is the memory available to the page cache, and `encoded_per_s` the number of samples that
    all CPUs together decode per second. The disk is measured only if later epochs read from it.
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
                decode(image)  # the first decoding also allocates memory
                yield image


def _disk_bytes_per_s(folder: str | os.PathLike[str], record_bytes: int) -> float:
    """Return the speed of reading records of a new file from the disk; 0 if it cannot be measured."""
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
