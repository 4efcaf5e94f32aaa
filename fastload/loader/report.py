"""Report of an epoch: the parts of its time and the next step, from the times that every epoch records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from fastload.loader.clock import EpochTimes, total_of
from fastload.system.units import format_count, format_duration

_Cause = TypeVar("_Cause", bound=str)

LEAST_S = 0.25
"""A training run, or an epoch, that takes less than this in all has nothing to gain."""

LEAST_BUSY = 0.6
"""Workers that are busy for less than this share of the time are idle: moving the batches is the cause."""

EpochVerdict = Literal["preparing", "storage", "transport", "model", "little"]
"""The cause that takes longest: making samples, waiting for storage or a lock while doing so, moving batches
between processes, the training step; or too little work to matter."""

_DOCTOR = "run 'fastload doctor train.py', which measures the gain of each change"

# The headline and the next step of each verdict.
_TEXTS: dict[EpochVerdict, tuple[str, str]] = {
    "preparing": (
        "Making samples (decoding and transforms) takes longer than training.",
        f"pack the dataset, or use fastload's transforms; {_DOCTOR}",
    ),
    "storage": (
        "Waiting for the disk, a lock or a sleep takes longer than training.",
        f"pack the dataset, or use a faster disk; {_DOCTOR}",
    ),
    "transport": (
        "Collating and moving batches between processes takes longer than training.",
        f"fewer workers, or smaller batches (uint8 in place of float32); {_DOCTOR}",
    ),
    "model": (
        "The training step takes longer than loading.",
        f"look at the training step: the model, logging, copies; {_DOCTOR}",
    ),
    "little": (
        "There is too little work in the epoch for loading to matter.",
        "nothing; with workers, persistent_workers=True saves starting them in each epoch",
    ),
}


@dataclass(frozen=True, slots=True)
class EpochReport:
    """A report of an epoch's time; `str()` of it is text for people.

    Attributes:
        verdict: The cause that takes longest.
        headline: The verdict as a sentence.
        evidence: The measurements, a sentence each.
        next_step: One thing to do.
        samples_per_s: The throughput without the first batch.
        wait_s: The wait for a batch, on average, without the first.
        step_s: The training's step between two batches, on average.
    """

    verdict: EpochVerdict
    headline: str
    evidence: tuple[str, ...]
    next_step: str
    samples_per_s: float
    wait_s: float
    step_s: float

    @property
    def scalars(self) -> dict[str, float]:
        """The figures by name, with the share of the waits, for TensorBoard, W&B and other loggers."""
        waiting_share = self.wait_s / max(self.wait_s + self.step_s, 1e-12)
        figures = {"samples_per_s": self.samples_per_s, "wait_s": self.wait_s, "step_s": self.step_s}
        return {**figures, "waiting_share": waiting_share}

    def __str__(self) -> str:
        evidence = (f"  - {text}" for text in self.evidence)
        return "\n".join([self.headline, *evidence, f"Next: {self.next_step}"])

    __repr__ = __str__


def report_of(times: EpochTimes, can_cache: bool = False, caches: Sequence[str] = ()) -> EpochReport:
    """Return the report of an epoch.

    `can_cache` is True if the dataset has no cache, but could have one; `caches` are sentences on those that
    it has.
    """
    verdict = _verdict(times)
    headline, next_step = _TEXTS[verdict]
    if verdict == "storage" and can_cache:
        next_step = f'keep the data in memory (cache="auto"); {_DOCTOR}'
    steps = max(times.batches - 1, 1)
    return EpochReport(
        verdict,
        headline,
        (*_evidence(times), *caches),
        next_step,
        times.samples_per_s,
        times.waiting_s / steps,
        times.stepping_s / steps,
    )


def _verdict(times: EpochTimes) -> EpochVerdict:
    epoch_s = times.waiting_s + times.stepping_s
    if times.first_wait_s + epoch_s < LEAST_S:
        return "little"
    loading_s, busy_share, load = times.waiting_s, 1.0, total_of(times.loading)
    if times.num_workers:
        # Workers load during the steps: all of their time counts, not only the waits.
        loading_s = max(loading_s, load.busy_s / times.num_workers)
        busy_share = load.busy_s / (times.num_workers * epoch_s) if epoch_s else 0.0
    # A dataset that fills batches itself makes its samples while it collates.
    collate_s = 0.0 if load.collate_s > 0.95 * load.busy_s else load.collate_s
    parts: dict[EpochVerdict, float] = {
        "preparing": load.busy_s - load.blocked_s - collate_s,
        "storage": load.blocked_s,
        "transport": collate_s,
    }
    step: dict[EpochVerdict, float] = {"model": times.stepping_s}
    return slower_cause(step, parts, times.stepping_s >= loading_s, busy_share, "transport")


def _evidence(times: EpochTimes) -> Iterator[str]:
    if times.batches < 2:
        batches = format_count(times.batches, "batch", "batches")
        yield f"Only {batches} of {format_count(times.batch_size, 'sample')} was seen."
        return
    steps = times.batches - 1
    rate = f"{times.samples_per_s:,.0f} samples/s in batches of {times.batch_size}"
    yield batch_text(rate, times.waiting_s / steps, times.stepping_s / steps)
    yield f"The first batch came after {format_duration(times.first_wait_s)}."
    load = total_of(times.loading)
    if load.samples:
        seconds = (each / load.samples for each in (load.cpu_s, load.blocked_s, load.delayed_s))
        yield loading_text(times.num_workers, "sample", *seconds)


def slower_cause(
    step: Mapping[_Cause, float],
    loading: Mapping[_Cause, float],
    is_step_slower: bool,
    busy_share: float,
    transport: _Cause,
) -> _Cause:
    """Return the cause on which the slower side spends most.

    `step` and `loading` are the seconds of each cause; `busy_share` is the share of the time in which workers
    make batches, 1 if unknown or without workers; `transport` is the cause if they are idle.
    """
    if is_step_slower:
        return max(step, key=lambda cause: step[cause])
    if busy_share < LEAST_BUSY:
        return transport
    return max(loading, key=lambda cause: loading[cause])


def batch_text(rate: str, wait_s: float, step_s: float) -> str:
    """Return the sentence on the time of a batch."""
    return (
        f"{rate}: each batch takes {format_duration(wait_s + step_s)}: {format_duration(wait_s)} waiting for "
        f"data, {format_duration(step_s)} training."
    )


def loading_text(num_workers: int, one: str, cpu_s: float, blocked_s: float, delayed_s: float) -> str:
    """Return the sentence on the time of making a sample."""
    by = format_count(num_workers, "worker") if num_workers else "the training process"
    return (
        f"Loaded by {by}: a {one} takes {format_duration(cpu_s)} of CPU time, {format_duration(blocked_s)} "
        f"of waiting (for a disk, a lock, a sleep) and {format_duration(delayed_s)} of waiting for a CPU."
    )
