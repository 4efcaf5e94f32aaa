"""Record of one loader: its waits, its steps, and the work of the main thread in them."""

from __future__ import annotations

import contextlib
import statistics
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import psutil
import torch
from torch.utils.data import DataLoader, IterableDataset

from fastload.doctor.findings import Category, MachineState, Role, Sampled, TrainingMeasurements, spent
from fastload.doctor.watching.categories import Stack, step_category, step_line
from fastload.doctor.watching.dataset_files import count_of, encoding_of, folder_of
from fastload.doctor.watching.step_watch import StepWatch
from fastload.doctor.watching.workers import WorkerLog
from fastload.loader.clock import StepClock, size_of, total_of
from fastload.loader.dataloader import DataLoader as FastloadDataLoader

WARMUP_RATIO = 3
"""A first step that takes more than this many median steps is warm-up: compilation, memory allocation,
choice of algorithms."""

# The most steps that count as warm-up; the number of latest steps that are kept.
_EARLY_STEPS = 16
_MOST_STORED = 4096

_OPTIONS = (
    *("collate_fn", "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "pin_memory"),
    *("num_workers", "prefetch_factor", "persistent_workers", "batch_size"),
)

# Fields of the record that are fields of the measurements, too.
_COUNTED = (
    *("num_workers", "prefetch_factor", "batches", "batch_bytes"),
    *("first_wait_s", "waits", "waiting_s", "copying_s", "with_grad", "in_training_mode"),
)

Readings = Callable[[], tuple[float, float, int, float, float]]
"""Returns the process's CPU seconds, those of waiting for a CPU, the optimizer steps, and the two sums of
`SyncWatch.seconds`."""


class LoaderSettings:
    """Settings of a loader that are needed to create another one like it, without a reference to it."""

    def __init__(self, loader: DataLoader[object]) -> None:
        self.dataset = loader.dataset
        self.kind = type(loader)
        ours = loader if isinstance(loader, FastloadDataLoader) else None
        self.compile = False if ours is None else ours.compile
        self.is_fastload = ours is not None
        self.options: dict[str, Any] = {name: getattr(loader, name, None) for name in _OPTIONS}
        self.options["num_workers"] = int(self.options["num_workers"] or 0)
        self.device = str((ours and ours.device) or "")  # to which the loader copies batches
        self.batch_sampler = getattr(loader, "batch_sampler", None)
        self.sampler = getattr(loader, "sampler", None)
        self.epoch_batches: int | None = None
        # torch remembers that the length of an iterable dataset was read, and may warn later.
        if not isinstance(self.dataset, IterableDataset):
            with contextlib.suppress(Exception):
                self.epoch_batches = len(loader)

    @property
    def batch_size(self) -> int | None:
        """The batch size of the loader or its batch sampler."""
        size = self.options["batch_size"] or getattr(self.batch_sampler, "batch_size", None)
        return size if isinstance(size, int) and size > 0 else None


@dataclass(slots=True)
class _Step:
    """Times of one step, and the stack samples of the main thread in it."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    delayed_s: float = 0.0
    synced_s: float = 0.0
    exchanged_s: float = 0.0
    seen: list[tuple[tuple[Category, str, str], float]] = field(default_factory=list)


class LoaderRecord:
    """Record of one loader, created at a `place` in the script, with its latest number of workers.

    A step lasts until the next batch is requested, or until an epoch of any loader begins. `others_s` is the
    part of the steps in which the training waited for other loaders, `copying_s` the part of the waits in
    which this loader copied batches to the device.
    """

    def __init__(
        self, name: str, loader: DataLoader[object], place: object, readings: Readings, step: StepWatch
    ) -> None:
        self.name, self._step = name, step
        self.place = place
        self.loader = weakref.ref(loader)
        self.iterator: weakref.ref[object] | None = None
        self.settings = LoaderSettings(loader)
        self.phase: Literal["starting", "waiting", "stepping", "outside"] = "outside"
        self.is_recreated = False
        self._asked_at = self._begun_at = 0.0
        self._readings = readings
        self._at_begin = readings()
        self._clear(self.settings.options["num_workers"], self.settings.options["prefetch_factor"])

    def _clear(self, num_workers: int, prefetch_factor: int | None) -> None:
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self.is_first = True  # no batch of this epoch has been handed out
        self.epochs = self.batches = self.batch_bytes = self.waits = self.trained = 0
        self.with_grad = self.in_training_mode = 0
        self.epoch_memory_bytes: list[int] = []
        self.first_wait_s = self.waiting_s = self.stepping_s = self.others_s = self.copying_s = 0.0
        self.log = WorkerLog()
        self._steps: deque[_Step] = deque(maxlen=_MOST_STORED)

    def is_followed_by(self, loader: DataLoader[object], place: object) -> bool:
        """Return whether this loader no longer exists and another one replaces it.

        Both load the same data, or similar data at the same place in the script.
        """
        options, number = self.settings.options, getattr(loader, "num_workers", None)
        before, now = self.settings.dataset, loader.dataset
        return (
            self.loader() is None
            and (before is now or self.place == place)
            and self.settings.kind is type(loader)
            and (options["batch_size"], options["num_workers"]) == (loader.batch_size, number)
            and (before is now or (type(before) is type(now) and count_of(before) == count_of(now)))
        )

    def follow(self, clock: StepClock) -> None:
        """Reset the record if fastload's loader has changed its number of workers."""
        if clock.num_workers != self.num_workers:
            self._clear(clock.num_workers, clock.prefetch_factor)
            self.epochs = 1

    @property
    def total_s(self) -> float:
        """Seconds that the training spent on this loader and on no other."""
        return self.first_wait_s + self.waiting_s + self.stepping_s - self.others_s

    def drop_last_step(self) -> None:
        """Forget the latest step, unless it is the only one: an error has ended it."""
        if len(self._steps) > 1:
            self.stepping_s -= self._steps.pop().seconds

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Record the creation of an epoch's iterator, which happens in the block."""
        self.phase = "starting"
        self.is_first = True
        self.epoch_memory_bytes.append(psutil.Process().memory_info().rss)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.first_wait_s += time.perf_counter() - began
            self.epochs += 1
            self.phase = "outside"

    def ask(self) -> None:
        """Record that the training asks for a batch, after the end of the step."""
        self.phase = "waiting"
        self._asked_at = time.perf_counter()

    def hand(self, batch: object, copied_s: float) -> float:
        """Record that the training gets a batch, copied to the device in `copied_s`; return the wait."""
        wait_s = time.perf_counter() - self._asked_at
        if self.is_first:
            self.first_wait_s += wait_s
        else:
            self.waits += 1
            self.waiting_s += wait_s
            self.copying_s += copied_s
        if not self.batches:
            self.batch_bytes = size_of(batch)[1]
        self.is_first = False
        self.batches += 1
        self.with_grad += torch.is_grad_enabled()
        self.in_training_mode += self._step.is_training_mode
        self._steps.append(_Step())
        self._at_begin = self._readings()
        self.phase = "stepping"
        self._begun_at = time.perf_counter()  # after the readings, which belong to no step
        return wait_s

    def close_step(self) -> None:
        """Record the end of the step, if there is one."""
        if self.phase == "stepping":
            ended_at = time.perf_counter()
            self.phase = "outside"
            step, pairs = self._steps[-1], zip(self._readings(), self._at_begin, strict=True)
            step.cpu_s, step.delayed_s, optimized, step.synced_s, step.exchanged_s = (
                after - before for after, before in pairs
            )
            step.seconds = ended_at - self._begun_at
            self.stepping_s += step.seconds
            self.trained += optimized > 0

    def notice(self, stack: Stack, seconds: float) -> None:
        """Record a stack sample of the main thread; the stack begins at the script."""
        if self.phase == "stepping" and self._steps:
            category = step_category(stack, torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
            self._steps[-1].seen.append(((category, *step_line(stack)), seconds))
        elif self.phase == "waiting" and not self.is_first and not self.num_workers:
            self.log.notice(stack, seconds)

    def steps(self) -> list[tuple[float, float]]:
        """Return the seconds of each step, without waits for a free CPU, and its CPU time."""
        waited = ((step.seconds - step.delayed_s, step.cpu_s) for step in self._steps)
        return [(max(seconds, cpu_s / torch.get_num_threads()), cpu_s) for seconds, cpu_s in waited]

    def role(self) -> Role:
        """Return the use of the loader's batches."""
        if self.trained:
            return "training"
        is_evaluated = not self._step.has_backward and 2 * self.in_training_mode < self.batches
        return "evaluation" if is_evaluated or 2 * self.with_grad < self.batches else "unknown"

    def measured(self, logs: Sequence[WorkerLog], machine: MachineState) -> TrainingMeasurements:
        """Return the measurements; `logs` are those of the workers."""
        settings, options = self.settings, self.settings.options
        logs = logs if self.num_workers else [self.log]
        work = total_of([log.times for log in logs])
        loading = _as_sampled(
            ((*key, ""), seconds) for log in logs for key, seconds in list(log.seen.items())
        )
        steps_s = [step.seconds for step in self._steps]
        warm = warmup_steps(steps_s)
        # The mean number of indices; a single one may stand for a whole batch.
        size = round(work.samples / max(1, work.batches))
        # The busiest worker may be another process each time that workers are started.
        starts = max(1, round(len(logs) / max(1, self.num_workers)))
        steps, kind = list(self._steps)[warm:], settings.kind
        used = "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]
        return TrainingMeasurements(
            machine=machine,
            **{name: getattr(self, name) for name in _COUNTED},
            batch_size=settings.batch_size or (size if size > 1 else None),
            epochs=max(1, self.epochs),
            epoch_batches=settings.epoch_batches,
            steps=len(steps),
            stepping_s=sum(steps_s[warm:]),
            step_cpu_s=sum(step.cpu_s for step in steps),
            step_delayed_s=sum(step.delayed_s for step in steps),
            warmup_steps=warm,
            warmup_s=sum(steps_s[:warm]),
            synced_s=tuple(step.synced_s for step in self._steps),
            exchanged_s=tuple(step.exchanged_s for step in self._steps),
            work=replace(work, collate_s=spent(loading, "collate")),
            busiest_s=sum(sorted(log.times.busy_s for log in logs)[-starts:]),
            loading=loading,
            training=_as_sampled(item for step in steps for item in step.seen),
            role=self.role(),
            device=torch.device(settings.device or used).type,
            encoding=encoding_of(settings.dataset),
            folder=folder_of(settings.dataset) or "FOLDER",
            is_fastload=settings.is_fastload,
            pin_memory=bool(options["pin_memory"]),
            persistent_workers=bool(options["persistent_workers"]) and not self.is_recreated,
            is_iterable=isinstance(settings.dataset, IterableDataset),
            is_recreated=self.is_recreated,
            epoch_memory_bytes=tuple(self.epoch_memory_bytes),
            own_class="" if kind in (DataLoader, FastloadDataLoader) else kind.__name__,
        )


def warmup_steps(steps_s: Sequence[float]) -> int:
    """Return how many of the first steps are warm-up, given all steps in order."""
    # After this many steps the first ones are no longer known, and do not matter.
    if not 1 < len(steps_s) < _MOST_STORED:
        return 0
    # An optimizer may be compiled after some normal steps; then no later one is nearly as long.
    early = min(_EARLY_STEPS, len(steps_s) // 2)
    most_s = WARMUP_RATIO * statistics.median_low(steps_s)
    later_s = WARMUP_RATIO * max(steps_s[early:])
    warm = next((index for index, step_s in enumerate(steps_s[:early]) if step_s <= most_s), early)
    return max([warm, *(index for index, step_s in enumerate(steps_s[:early], 1) if step_s > later_s)])


def _as_sampled(seen: Iterable[tuple[tuple[Category, str, str], float]]) -> tuple[Sampled, ...]:
    """Return the sums of the seconds by (category, place, source), the longest first."""
    total: dict[tuple[Category, str, str], float] = defaultdict(float)
    for key, seconds in seen:
        total[key] += seconds
    sampled = (Sampled(kind, place, seconds, source) for (kind, place, source), seconds in total.items())
    return tuple(sorted(sampled, key=lambda one: -one.seconds))
