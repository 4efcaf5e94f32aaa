"""Plans: what was decided, and the measurement behind each choice."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastload.loader._tuning.decide import (
    DEFAULT_PREFETCH,
    Decision,
    batch_s,
    decide,
    most_workers,
    prefetch_of,
    single_process_s,
    why_single_process,
)
from fastload.loader._tuning.measurements import (
    FORK_S,
    PlannedValue,
    SingleProcessCost,
    Trial,
    TuningMeasurements,
    WorkerLimits,
)
from fastload.system.units import format_duration, format_ratio

_SET = "set by you"

# Starting workers is worth a word where it takes such a share of an epoch.
_WORTH_MENTIONING = 0.05

NO_LIMITS_YET = WorkerLimits(cpus=1, most_workers=0, most_batches=0, reason="", start_s=FORK_S)


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a loader, with reasons. Printed, it is a table of the choices, then of the trials.

    Attributes:
        num_workers: Worker processes; 0: the training process loads.
        prefetch_factor: Batches asked of each worker in advance; None without workers.
        pin_memory: Whether batches are copied to page-locked memory.
        persistent_workers: Whether workers live on from epoch to epoch.
        cache: Where the dataset's bytes are cached; None for nowhere new.
        measured: The measurements it was decided from.
        is_settled: Whether nothing is left to be tried.
        origin: Where the measurements come from, as a sentence.
    """

    num_workers: PlannedValue
    prefetch_factor: PlannedValue
    pin_memory: PlannedValue
    persistent_workers: PlannedValue
    cache: PlannedValue
    measured: TuningMeasurements
    is_settled: bool
    origin: str

    @property
    def predicted_gain(self) -> float | None:
        """Factor by which this plan is faster than torch's defaults were; None if unknown."""
        measured = self.measured
        chosen = (self.num_workers.value, self.prefetch_factor.value or 0)
        trials = [trial for trial in measured.trials if trial.candidate == chosen]
        if measured.single_process is None or not trials:
            return None
        return single_process_s(measured) / statistics.median(trial.batch_s for trial in trials)

    def __str__(self) -> str:
        choices: dict[str, PlannedValue] = {name: getattr(self, name) for name in _CHOICES}
        rows = [(name, _format(choice.value), choice.reason) for name, choice in choices.items()]
        lines = [self.origin, "", *_table(("choice", "value", "why"), rows)]
        if trials := self._trial_rows():
            start = format_duration(self.measured.limits.start_s)
            lines += ["", *_table(("workers", "prefetch", "samples/s", "waiting", "batches"), trials)]
            lines += ["", f"Starting a worker takes {start} in each epoch, which counts as well."]
        return "\n".join(lines)

    def _trial_rows(self) -> list[tuple[str, ...]]:
        measured = self.measured
        rows: list[tuple[str, ...]] = []
        for candidate in sorted({trial.candidate for trial in measured.trials}):
            trials = measured.trials_of(candidate)
            seconds = statistics.median(trial.batch_s for trial in trials)
            waiting = statistics.median(trial.waiting_share for trial in trials)
            rate = _rate(measured, seconds)
            batches = sum(trial.batches for trial in trials)
            workers, prefetch = candidate
            rows.append((str(workers), str(prefetch or "-"), rate, f"{waiting:.0%}", str(batches)))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return a dict of numbers, strings and lists, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """Return the plan that `to_dict` was called on.

        Raises:
            KeyError, TypeError: The values are not those of a plan.
        """
        measured = dict(values["measured"])
        cost = measured["single_process"]
        measured["limits"] = WorkerLimits(**measured["limits"])
        measured["single_process"] = None if cost is None else SingleProcessCost(**cost)
        measured["trials"] = tuple(Trial(**trial) for trial in measured["trials"])
        return cls(
            **{name: PlannedValue(**values[name]) for name in _CHOICES},
            measured=TuningMeasurements(**measured),
            is_settled=bool(values["is_settled"]),
            origin=str(values["origin"]),
        )


_CHOICES = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache")


def explicit_plan(explicit: Mapping[str, Any], why_no_workers: str = "") -> Plan:
    """Return the plan of a loader that measures nothing."""
    measured = TuningMeasurements(dict(explicit), NO_LIMITS_YET, why_no_workers=why_no_workers)
    return make_plan(measured, decide(measured), is_settled=True)


def make_plan(
    measured: TuningMeasurements, decision: Decision, is_settled: bool, origin: str = "measured in this run"
) -> Plan:
    """Return the plan that follows from measurements, and from what was decided from them."""
    num_workers = _num_workers(measured, decision)
    return Plan(
        num_workers=num_workers,
        prefetch_factor=_prefetch_factor(measured, decision, num_workers.value),
        pin_memory=_pin_memory(measured),
        persistent_workers=_persistent_workers(measured, decision, num_workers.value),
        cache=PlannedValue(None, "none was asked for"),
        measured=measured,
        is_settled=is_settled,
        origin=origin if is_settled or measured.single_process is None else f"{origin}; more is to be tried",
    )


def _num_workers(measured: TuningMeasurements, decision: Decision) -> PlannedValue:
    if "num_workers" in measured.explicit:
        return PlannedValue(measured.explicit["num_workers"], _SET)
    if measured.why_no_workers:
        return PlannedValue(0, measured.why_no_workers)
    if measured.single_process is None:
        return PlannedValue(0, "nothing has been measured yet: iterate the loader")
    workers = decision.best.num_workers
    seconds = batch_s(measured, decision.best)
    rate = f"{_rate(measured, seconds)} samples/s"
    others = [batch_s(measured, trial.candidate) for trial in measured.trials if trial.num_workers]
    if workers:
        gain = format_ratio(single_process_s(measured) / max(seconds, 1e-9))
        reason = f"{rate}, {gain} the rate without workers"
        is_most = workers == most_workers(measured)
        return PlannedValue(workers, f"{reason}; {measured.limits.reason}" if is_most else reason)
    if others:
        return PlannedValue(0, f"{rate}; with workers at most {_rate(measured, min(others))}")
    if decision.is_deferred:
        return PlannedValue(0, f"{rate}; workers are tried once that is worth the cost of starting them")
    return PlannedValue(0, why_single_process(measured) or f"{rate}; workers are about to be tried")


def _prefetch_factor(measured: TuningMeasurements, decision: Decision, workers: int) -> PlannedValue:
    explicit = measured.explicit.get("prefetch_factor")
    if explicit is not None:
        return PlannedValue(explicit, _SET)
    if not workers:
        return PlannedValue(None, "there are no workers")
    prefetch = decision.best.prefetch_factor or prefetch_of(measured, workers)
    if prefetch == DEFAULT_PREFETCH:
        return PlannedValue(prefetch, "torch's default")
    return PlannedValue(
        prefetch, f"{workers * prefetch} batches under way hide that some take longer than others"
    )


def _pin_memory(measured: TuningMeasurements) -> PlannedValue:
    if "pin_memory" in measured.explicit:
        return PlannedValue(measured.explicit["pin_memory"], _SET)
    if measured.explicit.get("device") is not None:
        return PlannedValue(
            False, "batches go to the device from the workers' memory, which is page-locked once"
        )
    if not measured.has_cuda:
        return PlannedValue(False, "this process uses no CUDA device")
    return PlannedValue(True, "copies to the CUDA device are faster from page-locked memory")


def _persistent_workers(measured: TuningMeasurements, decision: Decision, workers: int) -> PlannedValue:
    if "persistent_workers" in measured.explicit:
        return PlannedValue(measured.explicit["persistent_workers"], _SET)
    if not workers:
        return PlannedValue(False, "there are no workers")
    reason = "workers that start with each epoch see your latest dataset"
    if measured.single_process is None or measured.batches is None:
        return PlannedValue(False, reason)
    start_s = workers * measured.limits.start_s
    epoch_s = measured.batches * batch_s(measured, decision.best)
    if start_s < _WORTH_MENTIONING * epoch_s:
        return PlannedValue(False, reason)
    share = (
        f"starting {workers} workers takes {format_duration(start_s)}, {start_s / epoch_s:.0%} of an epoch"
    )
    return PlannedValue(False, f"{reason}; {share}: set persistent_workers=True if the dataset never changes")


def _rate(measured: TuningMeasurements, seconds: float) -> str:
    size = 0 if measured.single_process is None else measured.single_process.batch_size
    return f"{size / seconds:,.0f}" if seconds else "-"


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
