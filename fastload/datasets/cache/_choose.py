"""The choice of a cache, as a pure function of measured rates.

An epoch reads each sample from the disk (F samples/s) or from memory (M), prepares it (P from encoded bytes,
P' from pixels), and trains on it (G). The stages overlap, so the slowest sets the rate. With a share x of the
samples in memory:

    fetch     1 / ((1 - x) / F + x / M)
    prepare   P, or 1 / ((1 - x) / P + x / P') if pixels are cached

Encoded bytes in memory speed up only the fetch: they pay only if F < R = min(P, G), and the share that raises
the fetch to R is h* = (1/F - 1/R) / (1/F - 1/M). If nothing is evicted, the share in memory is also the hit
ratio, in any order of reading (DS-Analyzer, Mohan et al., VLDB 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fastload.system.units import format_ratio, format_size

CacheKind = Literal["ram", "tmpfs", "disk", "device"]
Form = Literal["encoded", "decoded"]

# A smaller gain is within the difference between two measurements of one disk.
_LEAST_GAIN = 1.1


@dataclass(frozen=True, slots=True)
class CacheReadings:
    """Measurements of a dataset, its disk, this machine and the model."""

    samples: int
    sample_bytes: float  # the mean size of a stored sample
    decoded_bytes: float  # the mean size of its pixels
    disk_samples_per_s: float  # F, in random order, not from the page cache; 0 if unknown
    memory_bytes_per_s: float  # copied within memory
    prepare_samples_per_s: float  # P, by all workers
    prepare_decoded_samples_per_s: float | None = None  # P'; None if unknown, or if pixels cannot be cached
    step_samples_per_s: float | None = None  # G; None if unknown
    room_bytes: int = 0  # memory that the cache may take; 0 without Linux
    has_folder: bool = False  # a folder was named: the cache is in a tmpfs, not in shared memory
    is_in_memory: bool = False  # the dataset is in a tmpfs already
    device_room_bytes: int | None = None  # None if the device cannot hold the dataset

    @property
    def step(self) -> float:
        """G; infinite if unknown."""
        return math.inf if self.step_samples_per_s is None else self.step_samples_per_s

    @property
    def needed_samples_per_s(self) -> float:
        """R = min(P, G), the rate of the stages after the fetch."""
        return min(self.prepare_samples_per_s, self.step)

    @property
    def hit_ratio_needed(self) -> float:
        """h*, the share of samples that must come from memory so that fetching keeps up."""
        disk, need = self.disk_samples_per_s, self.needed_samples_per_s
        memory = max(need, self.memory_bytes_per_s / max(1.0, self.sample_bytes))
        return 0.0 if disk >= need else min(1.0, (1 / disk - 1 / need) / (1 / disk - 1 / memory))

    def size_bytes(self, form: Form) -> float:
        """Return the bytes of all samples in a form."""
        return max(1.0, self.samples * (self.sample_bytes if form == "encoded" else self.decoded_bytes))

    def rate(self, form: Form = "encoded", share: float = 0.0) -> float:
        """Return the overall samples/s with a share of the samples in memory."""
        memory = self.memory_bytes_per_s * self.samples / self.size_bytes(form)
        prepare = self.prepare_samples_per_s
        if form == "decoded":
            prepare = 1 / ((1 - share) / prepare + share / (self.prepare_decoded_samples_per_s or prepare))
        fetch = 1 / ((1 - share) / self.disk_samples_per_s + share / memory)
        return min(fetch, prepare, self.step)


@dataclass(frozen=True, slots=True)
class CacheReport:
    """Choice of a dataset's cache, and its state.

    Attributes:
        kind: `ram`, `tmpfs`, `disk` or `device`; None: no cache.
        form: `encoded` or `decoded`.
        share: The share of the samples for which there is room: the hit ratio of later epochs.
        reason: The reason for the choice.
        predicted_gain: The predicted rate as a multiple of the rate without the cache; 1 if unknown.
        ready: The share of the samples stored so far.
        used_bytes: The memory, or the room on the disk, that these take.
        stopped: The reason why no more samples are stored; "" while there is room.
        hits: Samples that this process and the workers forked from it have read from the cache.
        misses: Samples that they have read from the disk.
    """

    kind: CacheKind | None
    form: Form | None
    share: float
    reason: str
    predicted_gain: float = 1.0
    ready: float = 0.0
    used_bytes: int = 0
    stopped: str = ""
    hits: int = 0
    misses: int = 0

    @property
    def state(self) -> str:
        """`complete`, `filling, 42%`, or `stopped at 42%` and the reason."""
        if self.stopped:
            return f"stopped at {self.ready:.0%}: {self.stopped}"
        return "complete" if self.ready >= self.share else f"filling, {self.ready:.0%}"


def no_cache(reason: str) -> CacheReport:
    return CacheReport(None, None, 0.0, f"no cache: {reason}")


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
    # As long as the model's rate is unknown, so is the time that it loses to decoding.
    if readings.prepare_decoded_samples_per_s is not None and readings.step_samples_per_s is not None:
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
    size, gain = readings.size_bytes("decoded"), readings.step / readings.rate()
    is_known = readings.step_samples_per_s is not None and readings.device_room_bytes is not None
    if not is_known or size > (readings.device_room_bytes or 0) or gain < _LEAST_GAIN:
        return None
    reason = (
        f"on the device: all {format_size(size)} of pixels fit there, and the model takes "
        f"{format_ratio(gain)} what is loaded"
    )
    return CacheReport("device", "decoded", 1.0, reason, gain)


def _bottleneck(readings: CacheReadings, form: Form) -> str:
    """Compare the stage that a cache of this form would speed up with the stages after it."""
    if form == "decoded" and readings.prepare_samples_per_s < readings.disk_samples_per_s:
        ratio = format_ratio(readings.prepare_samples_per_s / readings.step)
        return f"this machine decodes {ratio} what the model takes"
    is_model = readings.step <= readings.prepare_samples_per_s
    ratio = format_ratio(readings.disk_samples_per_s / readings.needed_samples_per_s)
    return f"your disk feeds {ratio} what {'the model takes' if is_model else 'this machine decodes'}"
