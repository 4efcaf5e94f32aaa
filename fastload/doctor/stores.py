"""Where files lie, and how fast they are read from there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from fastload.errors import OptionError
from fastload.loader.diagnosis.measurements import Store
from fastload.system.disks import disk_of
from fastload.system.read_speed import measure_reading

_SIZED = 256

# What is taken for the size of a record, where nobody says how many there are: a photo's.
_RECORD_BYTES = 128 << 10


def measure_store(
    paths: Sequence[str], samples: int, most_s: float = 2.0, are_containers: bool = False
) -> Store | None:
    """Reads some of the files, from the disk and from the page cache; None where there are none.

    Args:
        paths: Files, all or a sample; all, where they are containers.
        samples: How many there are in all; 0 where nobody knows.
        most_s: For how long to read, in seconds.
        are_containers: Whether each file holds many samples. Else it is one.
    """
    sizes = [size for size in map(_size, _some(paths, are_containers)) if size is not None]
    if not sizes:
        return None
    record_bytes = None
    size_bytes = round(sum(sizes) / len(sizes) * samples)
    if are_containers:
        size_bytes = sum(sizes)
        samples = samples or max(1, size_bytes // _RECORD_BYTES)
        record_bytes = max(1, size_bytes // samples)
    with contextlib.suppress(OptionError, OSError):
        disk = disk_of(paths[0])
        reading = measure_reading(paths, record_bytes, most_s=most_s)
        return Store(
            samples=samples,
            size_bytes=size_bytes,
            kind=disk.file_system if disk.kind == "unknown" else f"{disk.kind}, {disk.file_system}",
            is_cold=reading.is_cold,
            random_per_s=reading.cold_random.records_per_s,
            parallel_per_s=max(reading.cold_parallel.records_per_s, reading.cold_random.records_per_s),
            sequential_bytes_per_s=reading.cold_sequential.bytes_per_s,
            warm_per_s=reading.warm_random.records_per_s,
            latency_s=reading.latency_s,
            note=reading.note,
            are_containers=are_containers,
        )
    return Store(samples, size_bytes, are_containers=are_containers)


def _some(paths: Sequence[str], are_containers: bool) -> Sequence[str]:
    return paths if are_containers else paths[:: max(1, len(paths) // _SIZED)]


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None
