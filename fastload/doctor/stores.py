"""Where files lie, and how fast they are read from there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from fastload.diagnosis.measurements import Store
from fastload.errors import OptionError
from fastload.storage import disk_of, measure_reading

_SIZED = 256


def measure_store(
    paths: Sequence[str], files: int, most_s: float = 2.0, record_bytes: int | None = None
) -> Store | None:
    """Reads some of the files, from the disk and from the page cache; None where there are none.

    Args:
        paths: Files, all or a sample.
        files: How many there are in all.
        most_s: For how long to read, in seconds.
        record_bytes: How large a record is, where files hold many; then `files` counts these.
    """
    sizes = [size for size in map(_size, paths[:: max(1, len(paths) // _SIZED)]) if size is not None]
    if not sizes:
        return None
    size_bytes = sum(sizes) if record_bytes else round(sum(sizes) / len(sizes) * files)
    with contextlib.suppress(OptionError, OSError):
        disk = disk_of(paths[0])
        reading = measure_reading(paths, record_bytes, most_s=most_s)
        return Store(
            files=files,
            size_bytes=size_bytes,
            kind=disk.file_system if disk.kind == "unknown" else f"{disk.kind}, {disk.file_system}",
            is_cold=reading.is_cold,
            random_per_s=reading.cold_random.records_per_s,
            parallel_per_s=max(reading.cold_parallel.records_per_s, reading.cold_random.records_per_s),
            sequential_bytes_per_s=reading.cold_sequential.bytes_per_s,
            warm_per_s=reading.warm_random.records_per_s,
            latency_s=reading.latency_s,
            note=reading.note,
        )
    return Store(files, size_bytes)


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None
