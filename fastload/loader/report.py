"""Report of an epoch: where its time went, and the next step, from what every epoch notes by the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastload.loader.times import EpochTimes
from fastload.system.units import format_count, format_duration

LEAST_S = 0.25
"""An epoch that takes less in all has nothing to gain."""

LEAST_BUSY = 0.6
"""Workers that make batches for less than this share of the time are not what the training waits for."""

EpochVerdict = Literal["preparing", "storage", "transport", "model", "little"]
"""The side that takes longer: making samples; waiting for a disk or a lock meanwhile; moving batches between
processes; the training step; or too little work to matter. `fastload doctor` tells decoding from transforms,
too."""


@dataclass(frozen=True, slots=True)
class EpochReport:
    """A report of an epoch's time; `str()` of it is text for people.

    Attributes:
        verdict: The side that takes longer.
        headline: The same as a sentence.
        evidence: The measurements, a sentence each.
        next_step: One thing to do.
        samples_per_s: The throughput, the first batch left out.
    """

    verdict: EpochVerdict
    headline: str
    evidence: tuple[str, ...]
    next_step: str
    samples_per_s: float

    def __str__(self) -> str:
        return "\n".join(
            [self.headline, *(f"  - {text}" for text in self.evidence), f"Next: {self.next_step}"]
        )

    __repr__ = __str__


_HEADLINES: dict[EpochVerdict, str] = {
    "preparing": "Making samples (decoding and transforms) takes longer than training.",
    "storage": "Waiting for the disk, a lock or a sleep takes longer than training.",
    "transport": "Collating and moving batches between processes takes longer than training.",
    "model": "The training step takes longer than loading.",
    "little": "There is too little work in the epoch for loading to matter.",
}
_DOCTOR = "run 'fastload doctor train.py', which measures what each change gains"
_NEXT: dict[EpochVerdict, str] = {
    "preparing": f"pack the dataset, or use cheaper transforms; {_DOCTOR}",
    "storage": f'keep the data in memory (cache="auto"), or pack it; {_DOCTOR}',
    "transport": f"fewer workers, or smaller batches (uint8 in place of float32); {_DOCTOR}",
    "model": f"look at the training step: the model, logging, copies; {_DOCTOR}",
    "little": "nothing; with workers, persistent_workers=True saves their start in each epoch",
}


def report_of(times: EpochTimes) -> EpochReport:
    """Return the report of an epoch."""
    verdict = _verdict(times)
    return EpochReport(
        verdict, _HEADLINES[verdict], tuple(_evidence(times)), _NEXT[verdict], times.samples_per_s
    )


def _verdict(times: EpochTimes) -> EpochVerdict:
    if times.first_wait_s + times.waiting_s + times.stepping_s < LEAST_S:
        return "little"
    loading_s = times.waiting_s
    busy_s = sum(process.busy_s for process in times.loading)
    if times.num_workers and times.loading:
        # Workers load beside the steps: what they took counts, not only the part that was waited for.
        loading_s = max(loading_s, busy_s / times.num_workers)
    if times.stepping_s >= loading_s:
        return "model"
    if times.num_workers and busy_s < LEAST_BUSY * times.num_workers * (times.waiting_s + times.stepping_s):
        return "transport"
    blocked_s = sum(process.blocked_s for process in times.loading)
    collate_s = sum(process.collate_s for process in times.loading)
    # A dataset that fills batches itself makes its samples while it collates.
    collate_s = 0.0 if collate_s > 0.95 * busy_s else collate_s
    parts: dict[EpochVerdict, float] = {
        "preparing": busy_s - blocked_s - collate_s,
        "storage": blocked_s,
        "transport": collate_s,
    }
    return max(parts, key=lambda name: parts[name])


def _evidence(times: EpochTimes) -> list[str]:
    if times.batches < 2:
        return [
            f"Only {format_count(times.batches, 'batch', 'batches')} of "
            f"{format_count(times.batch_size, 'sample')} was seen."
        ]
    steps = times.batches - 1
    wait_s, step_s = times.waiting_s / steps, times.stepping_s / steps
    found = [
        f"{times.samples_per_s:,.0f} samples/s in batches of {times.batch_size}: each batch takes "
        f"{format_duration(wait_s + step_s)}: {format_duration(wait_s)} waiting for data, "
        f"{format_duration(step_s)} training.",
        f"The first batch came after {format_duration(times.first_wait_s)}.",
    ]
    made = sum(process.samples for process in times.loading)
    if made:
        cpu_s, blocked_s, delayed_s = (
            sum(getattr(process, name) for process in times.loading) / made
            for name in ("cpu_s", "blocked_s", "delayed_s")
        )
        who = format_count(times.num_workers, "worker") if times.num_workers else "the training process"
        found.append(
            f"Loaded by {who}: a sample takes {format_duration(cpu_s)} of CPU time, "
            f"{format_duration(blocked_s)} of waiting (for a disk, a lock, a sleep) and "
            f"{format_duration(delayed_s)} of waiting for a free CPU."
        )
    return found
