"""Which cache pays: a pure function of what was measured.

An epoch takes each sample from the disk (F samples/s) or from memory (M), prepares it (P of encoded bytes,
P' of decoded pixels), and has the model learn from it (G). These overlap, so the slowest sets the rate.
With a share x of the samples in memory:

    fetch     1 / ((1 - x) / F + x / M)
    prepare   P, or 1 / ((1 - x) / P + x / P') where pixels are kept

Encoded bytes in memory speed up the fetch alone: they pay only if F < R = min(P, G), and then the share that
lifts the fetch to R is h* = (1/F - 1/R) / (1/F - 1/M). A share of a set that is never evicted is also its hit
ratio, whatever the order (DS-Analyzer, Mohan et al., VLDB 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fastload.system.units import size as size_text
from fastload.system.units import times

Kind = Literal["ram", "tmpfs", "page", "device"]
Form = Literal["encoded", "decoded"]

# What gains less than this is within what two measurements of one disk differ by.
_LEAST_GAIN = 1.1

# A set that the page cache is to keep must fit so many times: it shares the memory with all else that is
# read.
_PAGE_CACHE_ROOM = 2.0


@dataclass(frozen=True, slots=True)
class CacheReadings:
    """What was measured of a dataset, its disk, this machine and the model.

    Attributes:
        samples: How many there are.
        sample_bytes: What is stored of one, on average.
        decoded_bytes: Its pixels, on average.
        disk_samples_per_s: F: read in random order from the disk itself, not from the page cache; 0 where
            that could not be measured.
        memory_bytes_per_s: How fast memory is copied.
        prepare_samples_per_s: P: decoded and transformed from encoded bytes, by all workers.
        prepare_decoded_samples_per_s: P': the same from pixels; None where pixels cannot be kept, or it is
            not known.
        step_samples_per_s: G: what the model learns from; None where that is not known.
        room_bytes: Shared memory that may be taken; 0 where this system has none of that kind.
        tmpfs_room_bytes: What may be taken of a tmpfs where there is none.
        page_room_bytes: What the page cache can grow to.
        is_in_memory: Whether the dataset lies in a tmpfs already.
        device_room_bytes: Memory of the device that may be taken; None where there is no device, or the
            dataset or its transform is none that it can hold.
    """

    samples: int
    sample_bytes: float
    decoded_bytes: float
    disk_samples_per_s: float
    memory_bytes_per_s: float
    prepare_samples_per_s: float
    prepare_decoded_samples_per_s: float | None = None
    step_samples_per_s: float | None = None
    room_bytes: int = 0
    tmpfs_room_bytes: int = 0
    page_room_bytes: int = 0
    is_in_memory: bool = False
    device_room_bytes: int | None = None

    @property
    def needed_samples_per_s(self) -> float:
        """R: what the rest can take, min(P, G)."""
        return min(self.prepare_samples_per_s, self._step)

    @property
    def memory_samples_per_s(self) -> float:
        """M: encoded samples copied out of memory."""
        return self.memory_bytes_per_s / max(1.0, self.sample_bytes)

    @property
    def hit_ratio_needed(self) -> float:
        """h*: the share of samples that must come from memory so that fetching keeps up; 0 where it does."""
        disk, need, memory = self.disk_samples_per_s, self.needed_samples_per_s, self.memory_samples_per_s
        if disk >= need:
            return 0.0
        return min(1.0, (1 / disk - 1 / need) / (1 / disk - 1 / max(memory, need)))

    @property
    def _step(self) -> float:
        return math.inf if self.step_samples_per_s is None else self.step_samples_per_s

    def rate(self, form: Form | None = None, share: float = 0.0) -> float:
        """Samples/s of the whole with a share of the samples in memory."""
        memory = self.memory_samples_per_s
        prepare = self.prepare_samples_per_s
        if form == "decoded":
            memory = self.memory_bytes_per_s / max(1.0, self.decoded_bytes)
            prepare = 1 / ((1 - share) / prepare + share / (self.prepare_decoded_samples_per_s or prepare))
        fetch = 1 / ((1 - share) / self.disk_samples_per_s + share / memory)
        return min(fetch, prepare, self._step)


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """Where a dataset's bytes are to live.

    Attributes:
        kind: `ram`, `tmpfs`, `page` or `device`; None: where they are.
        form: What of the samples is kept.
        share: Of the samples; the hit ratio of every epoch but the first.
        reason: Why, in a sentence.
        predicted_gain: The rate with it as a multiple of the rate without.
    """

    kind: Kind | None
    form: Form | None
    share: float
    reason: str
    predicted_gain: float = 1.0


def choose_cache(readings: CacheReadings) -> CacheChoice:
    """Chooses what to keep where; nothing where the gain would be under 10 %.

    Shared memory comes before a tmpfs, because no limit of /dev/shm holds for it and it cannot outlive its
    users; and both before the page cache, which evicts what is to be read next when anything else is read.
    Encoded bytes come before pixels where both gain as much.
    """
    if readings.is_in_memory:
        return CacheChoice(None, None, 0.0, "no cache: the dataset lies in memory already (tmpfs)")
    if readings.disk_samples_per_s <= 0:
        return CacheChoice(None, None, 0.0, "no cache: the disk could not be measured")
    if (on_device := _on_device(readings)) is not None:
        return on_device
    room = readings.room_bytes or readings.tmpfs_room_bytes
    kind: Kind = "ram" if readings.room_bytes else "tmpfs"
    forms: list[Form] = ["encoded"]
    # Without a known model, what decoding costs it is not known either.
    if readings.prepare_decoded_samples_per_s is not None and readings.step_samples_per_s is not None:
        forms.append("decoded")
    plain = readings.rate()
    best: tuple[float, Form, float] | None = None
    for form in forms:
        share = _share(readings, form, room)
        rate = readings.rate(form, share)
        if best is None or rate > best[0] * _LEAST_GAIN:
            best = rate, form, share
    assert best is not None
    rate, form, share = best
    gain = rate / plain
    if gain >= _LEAST_GAIN:
        where = "shared memory" if kind == "ram" else "a tmpfs"
        what = "all samples"
        if share < 1:
            what = f"{share:.0%} of the samples (what fits, and is never evicted)"
        if form == "encoded" and share < readings.hit_ratio_needed:
            what += f" of the {readings.hit_ratio_needed:.0%} with which the disk would keep up"
        reason = f"{where}, {what}, {form}: {_bottleneck(readings, form)}; predicted gain {gain:.1f} times"
        return CacheChoice(kind, form, share, reason, gain)
    return _without_a_store(readings, room)


def _share(readings: CacheReadings, form: Form, room: int) -> float:
    size = readings.samples * (readings.sample_bytes if form == "encoded" else readings.decoded_bytes)
    return min(1.0, room / max(1.0, size))


def _on_device(readings: CacheReadings) -> CacheChoice | None:
    size = readings.samples * readings.decoded_bytes
    if readings.device_room_bytes is None or size > readings.device_room_bytes:
        return None
    plain = readings.rate()
    if readings.step_samples_per_s is None or readings.step_samples_per_s < plain * _LEAST_GAIN:
        return None
    gain = readings.step_samples_per_s / plain
    reason = (
        f"on the device: all {size_text(size)} of pixels fit there, and the model takes {times(gain)} "
        "what is loaded"
    )
    return CacheChoice("device", "decoded", 1.0, reason, gain)


def _without_a_store(readings: CacheReadings, room: int) -> CacheChoice:
    """What is left where a store would gain nothing."""
    if not readings.hit_ratio_needed:
        return CacheChoice(None, None, 0.0, f"no cache: {_bottleneck(readings, 'encoded')}")
    size = readings.samples * readings.sample_bytes
    gain = readings.rate("encoded", 1.0) / readings.rate()
    if gain >= _LEAST_GAIN and size * _PAGE_CACHE_ROOM <= readings.page_room_bytes:
        reason = (
            f"the page cache: {_bottleneck(readings, 'encoded')}; this system has no shared memory for a "
            f"store, and {size_text(size)} fit into what is free {times(readings.page_room_bytes / size)}"
        )
        return CacheChoice("page", "encoded", 1.0, reason, gain)
    share = _share(readings, "encoded", room)
    reason = (
        f"no cache: {_bottleneck(readings, 'encoded')}, but of {size_text(size)} the memory left takes "
        f"{share:.0%}, which would gain less than {_LEAST_GAIN - 1:.0%}"
    )
    return CacheChoice(None, None, 0.0, reason)


def _bottleneck(readings: CacheReadings, form: Form) -> str:
    """How what a cache of this form would speed up compares with what comes after it."""
    if form == "decoded" and readings.prepare_samples_per_s < readings.disk_samples_per_s:
        step = readings.step_samples_per_s or math.inf
        return f"this machine decodes {times(readings.prepare_samples_per_s / step)} what the model takes"
    limit = readings.step_samples_per_s
    is_model = limit is not None and limit <= readings.prepare_samples_per_s
    ratio = times(readings.disk_samples_per_s / readings.needed_samples_per_s)
    return f"your disk feeds {ratio} what {'the model takes' if is_model else 'this machine decodes'}"
