"""Opening of a dataset's cache: the one that is asked for or, for `auto`, the one that measured rates choose.

An epoch reads each sample from the disk (F samples/s) or from memory, prepares it (P from encoded bytes, P'
from pixels), and trains on it (G). The stages overlap, so the slowest sets the rate. With a share x of the
samples in memory:

    fetch     F / (1 - x): reading memory is a part of preparing
    prepare   P, or 1 / ((1 - x) / P + x / P') if pixels are cached

Encoded bytes in memory speed up only the fetch: they pay only if F < R = min(P, G), and the share that raises
the fetch to R is h* = 1 - F / R. If nothing is evicted, the share in memory is also the hit ratio, in any
order of reading (DS-Analyzer, Mohan et al., VLDB 2021).
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastload.contracts import FillsBatches
from fastload.datasets.batch import HostMemory
from fastload.datasets.cache.disk import open_disk_cache
from fastload.datasets.cache.options import Cache, CacheKind, CacheReport, Form, no_cache
from fastload.datasets.cache.originals import Originals
from fastload.datasets.cache.sample_cache import SampleCache
from fastload.datasets.cache.sharing import can_cache
from fastload.datasets.cache.stored import find_shared, open_store_cache
from fastload.errors import DamageError, DecodeError, OptionError, SourceError
from fastload.sources.protocol import evenly_spaced
from fastload.system.cpus import usable_cpus
from fastload.system.disks import disk_of, measure_reading
from fastload.system.memory import Room, memory_room, tmpfs_room
from fastload.system.random_states import preserved_random_states
from fastload.system.units import format_ratio, format_size
from fastload.transforms.draws import EpochDraws

# A smaller gain is within the difference between two measurements of one disk.
_LEAST_GAIN = 1.1

# Samples prepared to measure how fast that is: about 50 ms of photos.
_PREPARED = 32


class PreparesSamples(FillsBatches, Protocol):
    """A dataset whose speed is measured, through a copy with another cache."""

    reducing_gap: float | None

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> object: ...

    def use_cache(self, cache: Cache, *, room: Room) -> CacheReport: ...


@dataclass(frozen=True, slots=True)
class Measured:
    """Rates that a loader has measured already. Those that are None are measured here, or remain unknown."""

    prepare_samples_per_s: float | None = None  # P, by all workers
    step_samples_per_s: float | None = None  # G
    device_room_bytes: int | None = None  # for the dataset; None if the device cannot hold it


@dataclass(frozen=True, slots=True)
class CacheReadings:
    """Measurements of a dataset, its disk, this machine and the model."""

    samples: int
    sample_bytes: float  # the mean size of a stored sample
    decoded_bytes: float  # the mean size of its pixels
    disk_samples_per_s: float  # F, in random order, not from the page cache; 0 if unknown
    prepare_samples_per_s: float  # P, by all workers
    prepare_decoded_samples_per_s: float | None = None  # P'; None if unknown, or if pixels cannot be cached
    step_samples_per_s: float = math.inf  # G; infinite if unknown
    room_bytes: int = 0  # memory that the cache may take; 0 without Linux
    has_folder: bool = False  # a folder was named: the cache is in a tmpfs, not in shared memory
    is_in_memory: bool = False  # the dataset is in a tmpfs already
    device_room_bytes: int | None = None  # None if the device cannot hold the dataset

    @property
    def knows_step(self) -> bool:
        """True if G is known."""
        return self.step_samples_per_s < math.inf

    @property
    def needed_samples_per_s(self) -> float:
        """R = min(P, G), the rate of the stages after the fetch."""
        return min(self.prepare_samples_per_s, self.step_samples_per_s)

    @property
    def hit_ratio_needed(self) -> float:
        """h*, the share of samples that must come from memory so that fetching keeps up."""
        return max(0.0, 1 - self.disk_samples_per_s / self.needed_samples_per_s)

    def size_bytes(self, form: Form) -> float:
        """Return the bytes of all samples in a form."""
        return max(1.0, self.samples * (self.sample_bytes if form == "encoded" else self.decoded_bytes))

    def rate(self, form: Form = "encoded", share: float = 0.0) -> float:
        """Return the overall samples/s with a share of the samples in memory."""
        prepare = self.prepare_samples_per_s
        if form == "decoded":
            prepare = 1 / ((1 - share) / prepare + share / (self.prepare_decoded_samples_per_s or prepare))
        fetch = self.disk_samples_per_s / (1 - share) if share < 1 else math.inf
        return min(fetch, prepare, self.step_samples_per_s)


def open_cache(
    cache: Cache, originals: Originals, choose: Callable[[], CacheReport], room: Room = memory_room
) -> tuple[SampleCache | None, CacheReport]:
    """Open the cache that is asked for; for `auto`, that of other processes, or else the one of `choose`.

    Returns it, or None if there is none on the host, and the reason.
    Raises OptionError if it is not possible here; for `auto`, only because of a folder that the user named.
    """
    if cache.kind == "disk":
        opened = open_disk_cache(originals.files(), cache)
        return opened, opened.report()
    if cache.kind == "device":
        reason = "asked for: a DataLoader with device= holds the pixels there"
        return None, CacheReport("device", "decoded", 1.0, reason)
    if cache.kind != "auto":
        kind: CacheKind = "tmpfs" if cache.kind == "tmpfs" else "ram"
        return open_store_cache(cache, CacheReport(kind, cache.form, 1.0, "asked for"), originals, room)
    try:
        choice = find_shared(cache, originals) or choose()
        if choice.kind in (None, "device"):
            return None, choice
        return open_store_cache(cache, choice, originals, room)
    except OptionError as error:  # /dev/shm cannot be written to, or another user has prepared the place
        if cache.folder is not None:
            raise
        return None, no_cache(str(error))


def gather(
    dataset: PreparesSamples, originals: Originals, cache: Cache, measured: Measured, room: Room
) -> CacheReadings:
    """Return readings for `choose_cache`, measuring what is not known yet, in about a second."""
    samples, paths = max(1, originals.samples), originals.paths()
    record_bytes = None if originals.records is None else max(1, originals.stored_bytes // samples)
    # Measured first, because preparing samples leaves them in the page cache.
    disk_bytes_per_s = measure_reading(paths, record_bytes)
    # Only a loader knows whether caching pixels could pay.
    may_cache_pixels = measured.step_samples_per_s is not None and originals.can_be_decoded
    room_bytes = room() if can_cache() else 0
    if cache.folder is not None:
        room_bytes = min(room_bytes, tmpfs_room(os.path.expanduser(cache.folder)))
    form: Form = "encoded" if measured == Measured() else "decoded"
    return CacheReadings(
        samples=samples,
        sample_bytes=originals.size_bytes("encoded") / samples,
        decoded_bytes=originals.size_bytes(form) / samples,
        disk_samples_per_s=disk_bytes_per_s / max(1.0, originals.stored_bytes / samples),
        prepare_samples_per_s=(
            measured.prepare_samples_per_s or _prepared_per_s(dataset, "encoded", room) or math.inf
        ),
        prepare_decoded_samples_per_s=_prepared_per_s(dataset, "decoded", room) if may_cache_pixels else None,
        step_samples_per_s=measured.step_samples_per_s or math.inf,
        room_bytes=room_bytes,
        has_folder=cache.folder is not None,
        is_in_memory=bool(paths) and disk_of(paths[0]).kind == "memory",
        device_room_bytes=measured.device_room_bytes,
    )


def choose_cache(readings: CacheReadings) -> CacheReport:
    """Choose the fastest cache, or none if the gain would be less than 10 %.

    Encoded bytes are preferred to pixels, unless pixels gain 10 % more.
    """
    if readings.is_in_memory:
        return no_cache("the dataset is in memory already (tmpfs)")
    if readings.disk_samples_per_s <= 0:
        return no_cache("the disk could not be measured")
    if (on_device := _on_device(readings)) is not None:
        return on_device
    kind: CacheKind = "tmpfs" if readings.has_folder else "ram"
    shares: dict[Form, float] = {"encoded": min(1.0, readings.room_bytes / readings.size_bytes("encoded"))}
    # Decoded images take more room, which pays only if the model would wait for decoding: its rate is needed.
    if readings.prepare_decoded_samples_per_s is not None and readings.knows_step:
        shares["decoded"] = min(1.0, readings.room_bytes / readings.size_bytes("decoded"))
    rates = {form: readings.rate(form, share) for form, share in shares.items()}
    form: Form = "decoded" if rates.get("decoded", 0) > rates["encoded"] * _LEAST_GAIN else "encoded"
    gain, bottleneck = rates[form] / readings.rate(), _bottleneck(readings, form)
    if gain >= _LEAST_GAIN:
        share, needed = shares[form], readings.hit_ratio_needed
        samples = "all samples" if share >= 1 else f"{share:.0%} of the samples (as many as fit)"
        if form == "encoded" and share < needed:
            samples += f" of the {needed:.0%} with which the disk would keep up"
        where = "shared memory" if kind == "ram" else "a tmpfs"
        reason = f"{where}, {samples}, {form}: {bottleneck}; predicted gain {gain:.1f} times"
        return CacheReport(kind, form, share, reason, gain)
    if not readings.hit_ratio_needed:
        return no_cache(bottleneck)
    size = format_size(readings.size_bytes("encoded"))
    return no_cache(
        f"{bottleneck}, but {shares['encoded']:.0%} of {size} fit into the memory left, which would gain "
        f"less than {_LEAST_GAIN - 1:.0%}"
    )


def _on_device(readings: CacheReadings) -> CacheReport | None:
    size, gain = readings.size_bytes("decoded"), readings.step_samples_per_s / readings.rate()
    if not readings.knows_step or size > (readings.device_room_bytes or 0) or gain < _LEAST_GAIN:
        return None
    reason = (
        f"on the device: all {format_size(size)} of pixels fit there, and the model could train "
        f"{format_ratio(gain)} as fast as samples are loaded now"
    )
    return CacheReport("device", "decoded", 1.0, reason, gain)


def _bottleneck(readings: CacheReadings, form: Form) -> str:
    """Compare the stage that a cache of this form would speed up with the stages after it."""
    if form == "decoded" and readings.prepare_samples_per_s < readings.disk_samples_per_s:
        ratio = format_ratio(readings.prepare_samples_per_s / readings.step_samples_per_s)
        return f"this machine decodes samples {ratio} as fast as the model uses them"
    is_model = readings.step_samples_per_s <= readings.prepare_samples_per_s
    ratio = format_ratio(readings.disk_samples_per_s / readings.needed_samples_per_s)
    stage = "the model uses" if is_model else "this machine decodes"
    return f"your disk reads samples {ratio} as fast as {stage} them"


def _prepared_per_s(dataset: PreparesSamples, form: Form, room: Room) -> float | None:
    """Measure how many samples all usable CPUs prepare in a second, from bytes or pixels in memory."""
    probe = copy.copy(dataset)
    if form == "decoded":
        if dataset.reducing_gap is not None or not can_cache():
            return None
        if probe.use_cache(Cache("ram", form=form), room=room).kind is None:
            return None
    indices = evenly_spaced(len(dataset), _PREPARED)
    try:
        with preserved_random_states(), EpochDraws(0):
            for _ in range(2):  # the first time, samples are read from the disk
                began = time.perf_counter()
                if probe.fetch_into(indices, HostMemory()) is NotImplemented:
                    probe.__getitems__(indices)
            return len(indices) / (time.perf_counter() - began) * usable_cpus()
    except (SourceError, DamageError, DecodeError):
        return None  # training will raise the error, which names the sample
