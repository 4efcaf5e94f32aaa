"""Plans: the decisions, and the measurement behind each of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from fastload.loader.measurements import DEFAULT_PREFETCH, Decision, PlannedValue
from fastload.loader.tuning.tuning import Tuning
from fastload.system.units import aligned, format_duration, format_ratio

_CHOICES = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache", "compiled")
_TRIAL_COLUMNS = ("workers", "prefetch", "samples/s", "waiting", "batches")
_SET = "set by you"


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a loader, with reasons. Printed, it is a table of the choices, then of the trials.

    Attributes:
        num_workers: Worker processes; 0: the training process loads.
        prefetch_factor: Batches prefetched by each worker; None without workers.
        pin_memory: True if batches are copied to page-locked memory.
        persistent_workers: True if workers stay alive between epochs.
        cache: The place of the cached bytes; None without a cache.
        compiled: True if samples come from a faster counterpart of the dataset.
        measured: The measurements behind the decisions.
        is_settled: True if nothing is left to be tried.
        origin: The source of the measurements, as a sentence.
    """

    num_workers: PlannedValue
    prefetch_factor: PlannedValue
    pin_memory: PlannedValue
    persistent_workers: PlannedValue
    cache: PlannedValue
    compiled: PlannedValue
    measured: Tuning
    is_settled: bool
    origin: str

    def __str__(self) -> str:
        choices = [(name, getattr(self, name)) for name in _CHOICES]
        rows = [(name, _format(choice.value), choice.reason) for name, choice in choices]
        lines = [self.origin, "", *aligned([("choice", "value", "why"), *rows])]
        if trials := self._trial_rows():
            lines += ["", *aligned([_TRIAL_COLUMNS, *trials])]
            start = format_duration(self.measured.start_s)
            lines += ["", f"Starting a worker takes {start} in each epoch, which is taken into account."]
        return "\n".join(lines)

    def _trial_rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for workers in sorted({trial.num_workers for trial in self.measured.trials}):
            trials = self.measured.trials_of(workers)
            rate = _rate(self.measured, statistics.median(trial.batch_s for trial in trials))
            waiting = statistics.median(trial.waiting_share for trial in trials)
            batches = sum(trial.batches for trial in trials)
            prefetch = str(self.measured.prefetch_of(workers)) if workers else "-"
            rows.append((str(workers), prefetch, rate, f"{waiting:.0%}", str(batches)))
        return rows


def make_plan(measured: Tuning, decision: Decision) -> Plan:
    """Return the plan that follows from measurements and a decision."""
    is_unfinished = measured.single_process is not None and not measured.is_settled
    explicit = {name: PlannedValue(value, _SET) for name, value in measured.explicit.items()}
    num_workers = explicit.get("num_workers") or _num_workers(measured, decision)
    has_workers = num_workers.value > 0
    return Plan(
        num_workers=num_workers,
        prefetch_factor=explicit.get("prefetch_factor") or _prefetch_factor(measured, num_workers.value),
        pin_memory=explicit.get("pin_memory") or _pin_memory(measured),
        persistent_workers=explicit.get("persistent_workers") or _persistent_workers(has_workers),
        cache=PlannedValue(None, "not requested"),
        compiled=PlannedValue(False, "not examined"),
        measured=measured,
        is_settled=measured.is_settled,
        origin=f"{measured.origin}; tuning continues" if is_unfinished else measured.origin,
    )


def _num_workers(measured: Tuning, decision: Decision) -> PlannedValue:
    if measured.why_no_workers:
        return PlannedValue(0, measured.why_no_workers)
    if measured.single_process is None:
        return PlannedValue(0, "nothing has been measured yet: iterate the loader")
    workers = decision.best
    seconds = measured.batch_s(workers)
    rate = f"{_rate(measured, seconds)} samples/s"
    others = [measured.batch_s(trial.num_workers) for trial in measured.trials if trial.num_workers]
    if workers:
        gain = format_ratio(measured.single_process_s / max(seconds, 1e-9))
        reason = f"{rate}, {gain} the rate without workers"
        is_most = workers == measured.most_workers
        return PlannedValue(workers, f"{reason}; {measured.limits.reason}" if is_most else reason)
    if others:
        return PlannedValue(0, f"{rate}; with workers at most {_rate(measured, min(others))}")
    if decision.is_deferred:
        return PlannedValue(0, f"{rate}; workers will be tried when starting them is worth it")
    return PlannedValue(0, measured.why_single_process or f"{rate}; workers will be tried next")


def _prefetch_factor(measured: Tuning, workers: int) -> PlannedValue:
    if not workers:
        return PlannedValue(None, "there are no workers")
    prefetch = measured.prefetch_of(workers)
    if prefetch == DEFAULT_PREFETCH:
        return PlannedValue(DEFAULT_PREFETCH, "torch's default")
    return PlannedValue(
        prefetch, f"{workers * prefetch} prefetched batches even out their different loading times"
    )


def _pin_memory(measured: Tuning) -> PlannedValue:
    if measured.explicit.get("device") is not None:
        return PlannedValue(
            False, "batches go to the device from the workers' memory, which is page-locked once"
        )
    if not measured.has_cuda:
        return PlannedValue(False, "this process uses no CUDA device")
    return PlannedValue(True, "copies to the CUDA device are faster from page-locked memory")


def _persistent_workers(has_workers: bool) -> PlannedValue:
    if not has_workers:
        return PlannedValue(False, "there are no workers")
    return PlannedValue(
        False, "workers started for each epoch see changes to your dataset; if there are none, set it to True"
    )


def _rate(measured: Tuning, seconds: float) -> str:
    size = 0 if measured.single_process is None else measured.single_process.batch_size
    return f"{size / seconds:,.0f}" if seconds else "-"


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
