"""Choice of what a cache on a disk stores: pixels where the disk keeps up with them, else the encoded images.

Pixels save decoding, and take five to ten times the room of photos. They pay if they are fetched at least as
fast as all CPUs decode the encoded images: then no sample would have to come from faster memory, which is
h* ≤ 0 in the rule for caches in memory. Both are lossless.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class FormReadings:
    """Measurements from which the form of a cache is chosen."""

    room_bytes: int  # that the cache may take
    samples: int
    decoded_bytes: float  # of all samples' pixels
    encoded_per_s: float  # samples that all CPUs decode from the encoded form
    memory_bytes: int  # available, for the page cache too
    disk_bytes_per_s: float  # of the cache's disk; 0 if it need not be, or cannot be, measured

    @property
    def fits_into_memory(self) -> bool:
        """True if the page cache can hold all pixels, so that later epochs do not read the disk."""
        return self.decoded_bytes <= _MEMORY_SHARE * self.memory_bytes


def is_decoded_faster(readings: FormReadings) -> bool:
    """Return True if pixels should be stored: there is room, and they are fetched fast enough."""
    if not readings.samples or readings.decoded_bytes > readings.room_bytes:
        return False
    fetched_per_s = readings.disk_bytes_per_s * readings.samples / max(1.0, readings.decoded_bytes)
    return readings.fits_into_memory or fetched_per_s >= readings.encoded_per_s


def read_form(
    source: CacheableFiles,
    folder: str | os.PathLike[str],
    decoded_bytes: float,
    room_bytes: int,
    *,
    has_size: bool,
    is_tiled: bool,
) -> FormReadings:
    """Measure what the choice depends on; the disk, with a file in `folder`, only if memory does not suffice.

    `has_size` says that the user has stated the room, `is_tiled` that encoded images have tiles.
    """
    room = room_bytes if has_size else int(_ROOM_SHARE * room_bytes)
    decode_s = _decode_cpu_s(source) * (_TILED_SHARE if is_tiled else 1.0)
    encoded_per_s = usable_cpus() / max(decode_s, 1e-9)
    memory = available_memory_bytes()
    readings = FormReadings(room, len(source), decoded_bytes, encoded_per_s, memory, 0.0)
    if decoded_bytes > room or readings.fits_into_memory:
        return readings
    speed = _disk_bytes_per_s(folder, int(decoded_bytes / max(1, len(source))))
    return FormReadings(room, len(source), decoded_bytes, encoded_per_s, memory, speed)


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
            return max(reading.cold_random.bytes_per_s, reading.cold_parallel.bytes_per_s)
    return 0.0
