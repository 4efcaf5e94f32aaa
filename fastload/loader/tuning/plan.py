"""Plans: what was decided, the measurement behind each choice, and what was tried."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastload.system.units import milliseconds


@dataclass(frozen=True, slots=True)
class Choice:
    """One parameter's value, and why it has it.

    Attributes:
        value: The value.
        reason: The measurement behind it, as a sentence.
    """

    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Some batches of an epoch, loaded in one way.

    Attributes:
        num_workers: Worker processes; 0: the training process.
        prefetch_factor: Batches asked of each in advance; 0 without workers.
        batches: How many batches.
        seconds: What they took, the training's steps included.
        waiting_s: How much of that the training waited for them.
    """

    num_workers: int
    prefetch_factor: int
    batches: int
    seconds: float
    waiting_s: float

    @property
    def batch_s(self) -> float:
        """Seconds from one batch to the next."""
        return self.seconds / self.batches

    @property
    def waiting_share(self) -> float:
        """How much of the time was spent waiting, from 0 to 1."""
        return self.waiting_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Alone:
    """What a batch takes where no workers run.

    Attributes:
        batch_size: Its samples.
        batch_bytes: Bytes of its tensors.
        load_s: Seconds that the training process needs to make it.
        load_cpu_s: The CPU time of that.
        load_blocked_s: How much of `load_s` went into waiting for a disk, a network or a lock.
        step_s: Seconds of the training's step.
    """

    batch_size: int
    batch_bytes: int
    load_s: float
    load_cpu_s: float
    load_blocked_s: float
    step_s: float

    @property
    def batch_s(self) -> float:
        """Seconds from one batch to the next."""
        return self.load_s + self.step_s


@dataclass(frozen=True, slots=True)
class Limits:
    """What a loader may take.

    Attributes:
        cpus: CPUs for this training process: its share, where several ranks run on the machine.
        most_workers: The most workers that memory, descriptors and the system allow.
        most_batches: The most batches that may lie ready in shared memory.
        reason: What set `most_workers`, as a clause.
        start_s: What starting a worker takes, in seconds.
    """

    cpus: int
    most_workers: int
    most_batches: int
    reason: str
    start_s: float


@dataclass(frozen=True, slots=True)
class Measurements:
    """All that a plan is decided from.

    Attributes:
        said: The parameters that the user has set, by name.
        limits: What the loader may take.
        alone: What a batch takes without workers; None while that has not been measured.
        batches: Of an epoch; None where nobody knows.
        trials: What was tried, in order.
        only_alone: Why workers must not load, as a sentence; "" if they may.
        has_cuda: Whether this process uses a CUDA device.
        pinning_gain: By what factor page-locked memory makes copies to it faster; None: not measured.
        cache: Where the dataset's bytes are kept, and why; None: no cache was asked for.
    """

    said: dict[str, Any]
    limits: Limits
    alone: Alone | None = None
    batches: int | None = None
    trials: tuple[Trial, ...] = ()
    only_alone: str = ""
    has_cuda: bool = False
    pinning_gain: float | None = None
    cache: Choice | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a loader loads, and why.

    Printed, it is a table: each choice, the measurement behind it, then what was tried.

    Attributes:
        num_workers: Worker processes; 0: the training process loads.
        prefetch_factor: Batches asked of each worker in advance; None without workers.
        pin_memory: Whether batches are copied to page-locked memory.
        persistent_workers: Whether workers live on from epoch to epoch.
        cache: Where samples' bytes are kept, None for nowhere new.
        measured: What it was decided from.
        is_settled: Whether anything is still to be tried.
        origin: Where it comes from, as a sentence.
    """

    num_workers: Choice
    prefetch_factor: Choice
    pin_memory: Choice
    persistent_workers: Choice
    cache: Choice
    measured: Measurements
    is_settled: bool
    origin: str

    @property
    def predicted_gain(self) -> float | None:
        """By what factor this plan is faster than torch's defaults were; None where that is not known."""
        alone = self.measured.alone
        rates = [trial.batch_s for trial in self.measured.trials if self._is_of(trial)]
        return alone.batch_s / statistics.median(rates) if alone is not None and rates else None

    def _is_of(self, trial: Trial) -> bool:
        return (trial.num_workers, trial.prefetch_factor or None) == (
            self.num_workers.value,
            self.prefetch_factor.value,
        )

    def __str__(self) -> str:
        rows = [
            (name, _shown(choice.value), choice.reason)
            for name, choice in (
                ("num_workers", self.num_workers),
                ("prefetch_factor", self.prefetch_factor),
                ("pin_memory", self.pin_memory),
                ("persistent_workers", self.persistent_workers),
                ("cache", self.cache),
            )
        ]
        goes_on = not self.is_settled and self.measured.alone is not None
        origin = f"{self.origin}; more is to be tried" if goes_on else self.origin
        lines = [origin, "", *_table(("choice", "value", "why"), rows)]
        tried = self._tried()
        if tried:
            lines += ["", *_table(("workers", "prefetch", "samples/s", "waiting", "batches"), tried)]
            start = milliseconds(self.measured.limits.start_s)
            lines += ["", f"Starting a worker takes {start} in each epoch, which counts as well."]
        return "\n".join(lines)

    def _tried(self) -> list[tuple[str, ...]]:
        alone = self.measured.alone
        if alone is None:
            return []
        rows = [_row(0, 0, alone.batch_s, alone.load_s / alone.batch_s, None, alone.batch_size)]
        for workers, prefetch in sorted({(t.num_workers, t.prefetch_factor) for t in self.measured.trials}):
            trials = [
                t for t in self.measured.trials if (t.num_workers, t.prefetch_factor) == (workers, prefetch)
            ]
            seconds = statistics.median([trial.batch_s for trial in trials])
            waiting = statistics.median([trial.waiting_share for trial in trials])
            batches = sum(trial.batches for trial in trials)
            rows.append(_row(workers, prefetch, seconds, waiting, batches, alone.batch_size))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """A dict of numbers, strings and lists, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """The plan that `to_dict` was called on.

        Raises:
            KeyError, TypeError: The values are no plan's.
        """
        measured = dict(values["measured"])
        measured["limits"] = Limits(**measured["limits"])
        measured["alone"] = None if measured["alone"] is None else Alone(**measured["alone"])
        measured["cache"] = None if measured["cache"] is None else Choice(**measured["cache"])
        measured["trials"] = tuple(Trial(**trial) for trial in measured["trials"])
        choices = {name: Choice(**values[name]) for name in _CHOICES}
        return cls(
            **choices,
            measured=Measurements(**measured),
            is_settled=bool(values["is_settled"]),
            origin=str(values["origin"]),
        )


_CHOICES = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache")


def _row(
    workers: int, prefetch: int, seconds: float, waiting: float, batches: int | None, batch_size: int
) -> tuple[str, ...]:
    rate = f"{batch_size / seconds:,.0f}" if seconds else "-"
    return (
        str(workers),
        str(prefetch or "-"),
        rate,
        f"{waiting:.0%}",
        "first ones" if batches is None else str(batches),
    )


def _shown(value: Any) -> str:
    return (
        {True: "yes", False: "no", None: "-"}[value]
        if value is None or value is True or value is False
        else str(value)
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
