"""Strategies for loading an epoch, as the user's arguments say or tuned, and the plan that each shows.

A loader has one strategy at a time. A strategy reads a view of the loader, returns iterators and plans, and
has no reference to the loader.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, replace

import torch

from fastload.errors import OptionError
from fastload.loader import torch_private
from fastload.loader.arguments import LoaderView, WorkerOptions
from fastload.loader.caching import LoaderCache
from fastload.loader.clock import StepClock
from fastload.loader.iterators.base import EpochIterator, EpochStart, SingleProcessIterator
from fastload.loader.iterators.workers import WorkersIterator
from fastload.loader.measurements import (
    DEFAULT_PREFETCH,
    DEFAULT_SETTINGS,
    NO_LIMITS_YET,
    Decision,
    PlannedValue,
    TuningSettings,
    read_limits,
)
from fastload.loader.tuning.epoch import TunedIterator, last_line
from fastload.loader.tuning.reducer import Tuner, epoch_announced, epoch_watched, workers_forbidden
from fastload.loader.tuning.tuning import Tuning
from fastload.system.units import aligned, format_duration, format_ratio

_CHOICES = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache", "compiled")
_TRIAL_COLUMNS = ("workers", "prefetch", "samples/s", "waiting", "batches")
_SET = "set by you"


class ExplicitStrategy:
    """Loads with the number of workers that the user has set; only the prefetch factor may be decided.

    Once the first batch shows that memory allows it, eight batches are prefetched in total. Each worker makes
    the same batches as in torch, so it draws the same random numbers.

    Args:
        reason: Why the training process loads, if the user did not ask for it.

    Attributes:
        explicit: The explicit parameters that the strategy was chosen for.
    """

    def __init__(self, view: LoaderView, reason: str = "") -> None:
        self.explicit = view.explicit
        self._tuning = Tuning(view.explicit, NO_LIMITS_YET, why_no_workers=reason, is_settled=True)
        self._is_decided = (
            "prefetch_factor" in view.explicit or not view.in_order or view.is_iterable or is_switched_off()
        )

    @property
    def options(self) -> WorkerOptions:
        """The values that the loader's attributes show; 0 workers until their number is settled."""
        workers = self.explicit.get("num_workers", 0)
        return WorkerOptions(
            workers,
            self._tuning.prefetch_of(workers) if workers else None,
            bool(self.explicit.get("pin_memory", False)),
            bool(self.explicit.get("persistent_workers", False)),
        )

    @property
    def plan(self) -> Plan:
        """Each choice and the measurement behind it, excluding the cache."""
        return make_plan(self._tuning, Decision(self.explicit.get("num_workers", 0), None))

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        """Prepare the next epoch; called before each epoch, even with persistent workers.

        `cache="auto"` is decided here or, if the epoch measures, during the epoch.
        """
        if cache is not None:
            cache.decide(view.dataset, None)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        """Begin an epoch."""
        start = replace(start, options=self.options)
        if not start.options.num_workers:
            return SingleProcessIterator(view, start)

        def choose_prefetch(clock: StepClock) -> int:
            limits = read_limits(view.multiprocessing_context, clock.batch_bytes)
            self._tuning = replace(self._tuning, limits=limits)
            self._is_decided = True
            return self._tuning.prefetch_of(clock.num_workers)

        # Limits are read only once: it takes a millisecond, and they hardly change.
        return WorkersIterator(
            view, replace(start, choose_prefetch=None if self._is_decided else choose_prefetch)
        )


class TunedStrategy:
    """Loads in the fastest way found by measuring the epochs' own batches.

    `worker_init_fn` is not called, as in torch without workers: the batches must not depend on the plan.
    """

    def __init__(self, view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> None:
        self.explicit = view.explicit
        self._is_off = is_switched_off()
        tuning = Tuning(view.explicit, NO_LIMITS_YET, batches=view.batches, settings=settings)
        if view.is_iterable:
            tuning = tuning.without_workers(
                "each worker would get all samples of an iterable dataset, unless it splits them"
            )
        elif self._is_off:
            tuning = tuning.without_workers("FASTLOAD_PLAN=off: nothing is tried")
        self.tuner = Tuner(tuning)
        self._cache: LoaderCache | None = None
        self._decided: tuple[Tuning, WorkerOptions] | None = None
        # The latest epoch's, if it was loaded by a settled plan.
        self._watched: StepClock | None = None

    @property
    def options(self) -> WorkerOptions:
        """The decided values; without workers while their number is not settled."""
        tuning = self.tuner.tuning
        # Read several times in each epoch.
        if self._decided is None or self._decided[0] is not tuning:
            workers = tuning.best if tuning.is_settled else 0
            plan = make_plan(tuning, Decision(workers, None))
            pins, persists = bool(plan.pin_memory.value), bool(plan.persistent_workers.value)
            prefetch = tuning.prefetch_of(workers) if workers else None
            self._decided = tuning, WorkerOptions(workers, prefetch, pins, persists)
        return self._decided[1]

    @property
    def plan(self) -> Plan:
        """The options, and the reasons for them."""
        return make_plan(self.tuner.tuning, self.tuner.tuning.decide())

    def prepare(self, view: LoaderView, cache: LoaderCache | None) -> None:
        """Take up what has changed since the last epoch."""
        self._cache = cache
        self.tuner.note(epoch_announced, view.batches)
        tuning = self.tuner.tuning
        if tuning.is_settled and cache is not None:
            cache.decide(view.dataset, tuning.single_process)

    def begin(self, view: LoaderView, start: EpochStart) -> EpochIterator:
        """Begin an epoch, in which the plan is made again if it did not fit the latest one."""
        if self._watched is not None:
            self.tuner.note(epoch_watched, self._watched)
        self._watched = start.clock if self.tuner.tuning.is_settled else None
        view = replace(view, worker_init_fn=None)
        options = self.options
        start = replace(start, seeds_batches=not (view.is_iterable or self._is_off), options=options)
        # Once the number of workers is settled, persistent workers are managed as in torch.
        if options.persistent_workers and options.num_workers:
            generator = view.generator or torch.default_generator
            state = generator.get_state()
            try:
                return WorkersIterator(view, start)
            except Exception as error:
                generator.set_state(state)
                self.tuner.note(workers_forbidden, f"workers cannot be started: {last_line(error)}")
            options = self.options
            start = replace(start, options=options)
        if self.tuner.tuning.is_settled and not options.num_workers:
            return SingleProcessIterator(view, start)
        return TunedIterator(view, start, self.tuner, self._cache)


EpochStrategy = ExplicitStrategy | TunedStrategy


def choose_strategy(view: LoaderView, settings: TuningSettings = DEFAULT_SETTINGS) -> EpochStrategy:
    """Return how this loader begins its epochs."""
    if torch_private.missing:
        return ExplicitStrategy(view, torch_private.explanation())
    return ExplicitStrategy(view) if "num_workers" in view.explicit else TunedStrategy(view, settings)


def is_switched_off() -> bool:
    """Return whether FASTLOAD_PLAN=off is set, so that nothing is decided.

    Raises:
        OptionError: It has another value.
    """
    value = os.environ.get("FASTLOAD_PLAN", "")
    if value not in ("", "off"):
        raise OptionError(f'FASTLOAD_PLAN must be "off", or not set, got {value!r}')
    return value == "off"


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
        limits: Limits of this process that make reading slow, as sentences with the remedy.
    """

    num_workers: PlannedValue[int]
    prefetch_factor: PlannedValue[int | None]
    pin_memory: PlannedValue[bool]
    persistent_workers: PlannedValue[bool]
    cache: PlannedValue[str | None]
    compiled: PlannedValue[bool]
    measured: Tuning
    is_settled: bool
    origin: str
    limits: tuple[str, ...] = ()

    def __str__(self) -> str:
        choices = [(name, getattr(self, name)) for name in _CHOICES]
        rows = [(name, _format(choice.value), choice.reason) for name, choice in choices]
        lines = [self.origin, *self.limits, "", *aligned([("choice", "value", "why"), *rows])]
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


def _num_workers(measured: Tuning, decision: Decision) -> PlannedValue[int]:
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


def _prefetch_factor(measured: Tuning, workers: int) -> PlannedValue[int | None]:
    if not workers:
        return PlannedValue(None, "there are no workers")
    prefetch = measured.prefetch_of(workers)
    if prefetch == DEFAULT_PREFETCH:
        return PlannedValue(DEFAULT_PREFETCH, "torch's default")
    return PlannedValue(
        prefetch, f"{workers * prefetch} prefetched batches even out their different loading times"
    )


def _pin_memory(measured: Tuning) -> PlannedValue[bool]:
    if measured.explicit.get("device") is not None:
        return PlannedValue(
            False, "batches go to the device from the workers' memory, which is page-locked once"
        )
    if not measured.has_cuda:
        return PlannedValue(False, "this process uses no CUDA device")
    return PlannedValue(True, "copies to the CUDA device are faster from page-locked memory")


def _persistent_workers(has_workers: bool) -> PlannedValue[bool]:
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
