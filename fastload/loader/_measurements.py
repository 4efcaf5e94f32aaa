"""Measurements by which loaders are tuned, and the values decided from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from fastload.loader._tuning_settings import DEFAULT_SETTINGS, TuningSettings


class Candidate(NamedTuple):
    """A number of workers to try, and the batches prefetched by each of them (0 without workers)."""

    num_workers: int
    prefetch_factor: int


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """The value of one parameter, and the measurement behind it as a sentence."""

    value: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Consecutive batches of an epoch, loaded with the same settings.

    `seconds` includes the training's steps, `waiting_s` is the part of it spent waiting for batches, and
    `blocked_share` the share of the loading spent waiting for a disk, a network or a lock.
    """

    num_workers: int
    prefetch_factor: int
    batches: int
    seconds: float
    waiting_s: float
    blocked_share: float = 0.0
    includes_start: bool = False

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.num_workers, self.prefetch_factor)

    @property
    def batch_s(self) -> float:
        """Seconds from one batch to the next."""
        return self.seconds / self.batches

    @property
    def waiting_share(self) -> float:
        """Share of the time spent waiting, from 0 to 1."""
        return self.waiting_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class SingleProcessCost:
    """Time and memory of a batch that is loaded in the training process.

    `load_blocked_s` is the part of `load_s` spent waiting for a disk, a network or a lock.
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
class WorkerLimits:
    """Resources that a loader may use.

    `cpus` are those of this process; `reason` explains `most_workers`; a worker takes `start_s` to start.
    """

    cpus: int
    most_workers: int
    most_batches: int
    reason: str
    start_s: float


@dataclass(frozen=True, slots=True)
class TuningMeasurements:
    """Everything from which a plan is decided.

    Attributes:
        explicit: The parameters that the user has set, by name.
        limits: Resources that the loader may use.
        single_process: Cost of a batch without workers; None while that has not been measured.
        batches: Batches in an epoch; None if unknown.
        trials: The trials in order, including those without workers.
        why_no_workers: The reason that forbids workers, as a sentence; "" if there is none.
        seen_batches: Batches handed out so far, in all epochs.
        lost_s: Seconds lost to trials and failed plans, compared with loading without workers.
        has_cuda: True if this process uses a CUDA device.
        settings: The constants by which it is decided.
    """

    explicit: dict[str, Any]
    limits: WorkerLimits
    single_process: SingleProcessCost | None = None
    batches: int | None = None
    trials: tuple[Trial, ...] = ()
    why_no_workers: str = ""
    seen_batches: int = 0
    lost_s: float = 0.0
    has_cuda: bool = False
    settings: TuningSettings = DEFAULT_SETTINGS

    @property
    def cost(self) -> SingleProcessCost:
        """The cost of a batch without workers, once it has been measured."""
        assert self.single_process is not None
        return self.single_process

    def trials_of(self, candidate: Candidate) -> list[Trial]:
        return [trial for trial in self.trials if trial.candidate == candidate]
