"""Notes of one loader: its waits, its steps, and what the main thread did in them."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fastload.doctor.categories import Frame, step_category, users_line, work_site
from fastload.doctor.findings import MachineState, Role, Sampled, TrainingMeasurements, WorkerTimes
from fastload.doctor.gpu import GpuTimes, has_device
from fastload.doctor.workers import ThreadClock, WorkerLog
from fastload.loader.clock import size_of

_MOST_NOTED = 4096
_MOST_PLACES = 200
# Steps that are noted one by one, so that warm-up can be left out.
_EARLY_STEPS = 16
WARMUP_RATIO = 3
"""A first step that takes more than so many median steps is warm-up: compilation, memory, choice of
algorithms.
"""

# Fewer batches say nothing of an epoch: the first ones were made ahead.
_LEAST_BATCHES = 8
# A sample is slow if it takes so many times the mean, and long enough to be seen several times.
_SLOW_RATIO = 5
_SLOW_S = 0.05

_OPTIONS = (
    *("collate_fn", "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "pin_memory"),
    *("num_workers", "prefetch_factor", "persistent_workers", "batch_size"),
)


class LoaderView:
    """The settings of a loader that are needed to make one like it; the loader itself is not kept."""

    def __init__(self, loader: Any) -> None:
        self.dataset = loader.dataset
        self.kind = type(loader)
        self.is_fastload = any(kind.__module__.partition(".")[0] == "fastload" for kind in self.kind.__mro__)
        self.options: dict[str, Any] = {name: getattr(loader, name, None) for name in _OPTIONS}
        self.options["num_workers"] = int(self.options["num_workers"] or 0)
        self.device = str(getattr(loader, "device", None) or "")
        self.batch_sampler = getattr(loader, "batch_sampler", None)
        self.sampler = getattr(loader, "sampler", None)
        self.epoch_batches = _length(loader)

    @property
    def batch_size(self) -> int | None:
        """The size that the loader or its batch sampler names."""
        size = self.options["batch_size"] or getattr(self.batch_sampler, "batch_size", None)
        return size if isinstance(size, int) and size > 0 else None


def _length(loader: Any) -> int | None:
    # Of an iterable dataset, torch notes that its length was asked for, and warns where it gives more.
    name = "_IterableDataset_len_called"
    noted = getattr(loader, name, None)
    try:
        return len(loader)
    except Exception:
        return None
    finally:
        if getattr(loader, name, None) is not noted:
            with contextlib.suppress(Exception):
                setattr(loader, name, noted)


@dataclass(slots=True)
class _Steps:
    """Sums over some steps."""

    count: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    delayed_s: float = 0.0
    seen: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: _Steps) -> None:
        self.count += other.count
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.delayed_s += other.delayed_s
        for key, seconds in list(other.seen.items()):  # The sampling thread may add to it.
            if key in self.seen or len(self.seen) < _MOST_PLACES:
                self.seen[key] += seconds


class LoaderRecord:
    """Notes of one loader while it had one number of workers.

    Attributes:
        phase: What the training does with it now.
        others_s: Seconds of its steps in which other loaders were asked too.
        copying_s: Seconds of its waits that went into copies to the device, where the loader makes them.
        log: Times of making batches in the training process.
        trained: Steps in which an optimizer stepped.
        without_grad: Steps that ended without gradients being recorded.
    """

    def __init__(
        self, name: str, view: LoaderView, num_workers: int, clock: ThreadClock, cpu_s: Callable[[], float]
    ) -> None:
        self.name = name
        self.view = view
        self.num_workers = num_workers
        self.prefetch_factor: int | None = view.options["prefetch_factor"]
        self.phase: Literal["starting", "waiting", "stepping", "outside"] = "outside"
        self.epochs = self.batches = self.batch_bytes = self.waits = self.trained = self.without_grad = 0
        self.first_wait_s = self.waiting_s = self.others_s = self.copying_s = 0.0
        self.waits_s: deque[float] = deque(maxlen=_MOST_NOTED)
        self.steps_s: deque[float] = deque(maxlen=_MOST_NOTED)
        self.log = WorkerLog()
        self.gpu = GpuTimes()
        self._clock = clock
        self._cpu_s = cpu_s
        self._early: list[_Steps] = []
        self._later = _Steps()
        self._step = _Steps()
        self._work_sites: set[str] = set()
        self._epoch_waits: list[list[float]] = []
        self._is_first = True
        self._at = 0.0
        self._read = (0.0, 0.0, 0.0)

    @property
    def total_s(self) -> float:
        """Seconds that the training spent on this loader and on no other."""
        steps_s = self._later.seconds + sum(step.seconds for step in self._early)
        return self.first_wait_s + self.waiting_s + steps_s - self.others_s

    def take_over(self, before: LoaderRecord) -> None:
        """Go on in the place of the record of the same loader whose number of workers has changed."""
        self._at = before._at
        self.phase, before.phase = before.phase, "outside"
        self.epochs += 1
        self._epoch_waits.append([])

    def begin_start(self) -> None:
        """Note that the iterator of an epoch is being made."""
        self.phase = "starting"
        self._at = time.perf_counter()
        self._is_first = True
        self._epoch_waits.append([])

    def end_start(self) -> None:
        """Note that it is made."""
        self.first_wait_s += time.perf_counter() - self._at
        self.epochs += 1
        self.phase = "outside"

    def ask(self) -> None:
        """Note that the training asks for a batch."""
        self.close_step()
        self.phase = "waiting"
        self.gpu.ask()
        self._at = time.perf_counter()

    def hand(self, batch: Any, copied_s: float) -> None:
        """Note that it gets one; `copied_s` is how long the loader copied it to the device."""
        now = time.perf_counter()
        wait_s = now - self._at
        self.gpu.hand(now, 0.0 if self._is_first else wait_s)
        if self._is_first:
            self.first_wait_s += wait_s
        else:
            self.waits += 1
            self.waiting_s += wait_s
            self.copying_s += copied_s
            self.waits_s.append(wait_s)
            self._epoch_waits[-1].append(wait_s)
        if not self.batches:
            self.batch_bytes = size_of(batch)[1]
        self._is_first = False
        self.batches += 1
        self._step = _Steps(count=1)
        self._read = self._readings()
        self.phase = "stepping"

    def end(self) -> None:
        """Note that the epoch ends, or that loading failed."""
        self.phase = "outside"

    def close_step(self) -> None:
        """Note that the step ends, if there is one."""
        if self.phase != "stepping":
            return
        self.phase = "outside"
        self.steps_s.append(self._measure_step())
        self._merge_step()

    def extend_step(self) -> None:
        """Count the time since the last step's end to it as well: it takes batches of other loaders too."""
        if self.phase == "outside" and self.steps_s:
            self._step = _Steps()
            more_s = self._measure_step()
            self.steps_s[-1] += more_s
            self.others_s += more_s
            self._merge_step()

    def _merge_step(self) -> None:
        if self._step.count and len(self._early) < _EARLY_STEPS:
            self._early.append(self._step)
        else:
            (self._later if self._later.count or not self._early else self._early[-1]).add(self._step)

    def _measure_step(self) -> float:
        now = self._readings()
        seconds, cpu_s, delayed_s = (after - before for after, before in zip(now, self._read, strict=True))
        self._read = now
        self._step.seconds, self._step.cpu_s, self._step.delayed_s = seconds, cpu_s, delayed_s
        return seconds

    def _readings(self) -> tuple[float, float, float]:
        return time.perf_counter(), self._cpu_s(), self._clock.delayed_s()

    def notice(self, stack: Sequence[Frame], seconds: float, index: int | None) -> None:
        """Note a stack sample of the main thread, from the script inwards."""
        if self.phase == "stepping":
            category = step_category(stack, has_device=has_device())
            if category == "work":
                self._work_sites.add(work_site(stack))
            self._step.seen[category, users_line(stack)] += seconds
        elif self.phase == "waiting" and not self._is_first and not self.num_workers:
            self.log.notice(stack, seconds, index)

    def role(self) -> Role:
        """Return what the loader's batches are used for."""
        if self.trained:
            return "training"
        return "evaluation" if self.without_grad > self.batches / 2 else "unknown"

    def measured(self, logs: Sequence[WorkerLog], machine: MachineState) -> TrainingMeasurements:
        """Return all notes as measurements; `logs` are those of the workers."""
        logs = logs if self.num_workers else [self.log]
        workers = tuple(log.times() for log in logs)
        warm = warmup_steps(self.steps_s)
        steps = _Steps()
        for step in (*self._early[warm:], self._later):
            steps.add(step)
        # The host waited, but the GPU was still at the steps before.
        hidden_s = min(self.waiting_s, self.gpu.busy_s)
        options = self.view.options
        return TrainingMeasurements(
            machine=machine,
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            batch_size=self.view.batch_size or _size_of_batches(workers),
            batches=self.batches,
            batch_bytes=self.batch_bytes,
            epochs=max(1, self.epochs),
            epoch_batches=self.view.epoch_batches,
            first_wait_s=self.first_wait_s,
            waits=self.waits,
            waiting_s=self.waiting_s - hidden_s,
            copying_s=min(self.copying_s, self.waiting_s - hidden_s),
            steps=steps.count,
            stepping_s=steps.seconds + hidden_s,
            step_cpu_s=steps.cpu_s,
            step_delayed_s=steps.delayed_s,
            warmup_steps=warm,
            warmup_s=sum(step.seconds for step in self._early[:warm]),
            waits_s=tuple(self.waits_s),
            steps_s=tuple(self.steps_s),
            epoch_waits_s=tuple(
                map(statistics.fmean, (e for e in self._epoch_waits if len(e) >= _LEAST_BATCHES))
            ),
            workers=workers,
            loading=as_sampled(sum_of(log.seen for log in logs)),
            training=as_sampled(
                with_hidden(with_ends_of_work(steps.seen, self._work_sites), self.gpu.behind_s)
            ),
            role=self.role(),
            is_fastload=self.view.is_fastload,
            pin_memory=bool(options["pin_memory"]),
            persistent_workers=bool(options["persistent_workers"]),
            slow_samples=slow_samples(logs),
        )


def warmup_steps(steps_s: Sequence[float]) -> int:
    """Return how many of the first steps are warm-up, of all steps in their order."""
    # Where so many steps were taken that the first ones are no longer known, they do not matter.
    if not 1 < len(steps_s) < _MOST_NOTED:
        return 0
    most_s = WARMUP_RATIO * statistics.median_low(steps_s)
    steps = list(steps_s)[: min(_EARLY_STEPS, len(steps_s) // 2)]
    return next((place for place, step_s in enumerate(steps) if step_s <= most_s), len(steps))


def _size_of_batches(workers: Sequence[WorkerTimes]) -> int | None:
    """Return the mean number of indices of a batch; None for one, which may stand for a whole batch."""
    batches = sum(worker.batches for worker in workers)
    size = round(sum(worker.samples for worker in workers) / batches) if batches else 0
    return size if size > 1 else None


def sum_of(parts: Any) -> dict[tuple[str, str], float]:
    """Return the sum of several sums by (category, place)."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for part in parts:
        for key, seconds in part.items():
            total[key] += seconds
    return total


def as_sampled(seconds: dict[tuple[str, str], float]) -> tuple[Sampled, ...]:
    """Return sums by (category, place) as samples, the longest first."""
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return tuple(Sampled(category, place, taken) for (category, place), taken in ordered)  # type: ignore[arg-type]


def with_ends_of_work(seen: dict[tuple[str, str], float], sites: set[str]) -> dict[tuple[str, str], float]:
    """Count lines that call work as work even where nothing of it was left on the stack."""
    changed: dict[tuple[str, str], float] = defaultdict(float)
    for (category, place), taken in seen.items():
        is_end = category == "model" and place != "" and place in sites
        changed["work" if is_end else category, place] += taken
    return changed


def with_hidden(seen: dict[tuple[str, str], float], behind_s: float) -> dict[tuple[str, str], float]:
    """Count copies as the model's where they waited for a GPU that was `behind_s` behind the host."""
    changed: dict[tuple[str, str], float] = defaultdict(float)
    copied_s = sum(taken for (category, _), taken in seen.items() if category == "copy")
    share = min(1.0, behind_s / copied_s) if copied_s > 0 else 0.0
    for (category, place), taken in seen.items():
        moved_s = share * taken if category == "copy" else 0.0
        changed["model", place] += moved_s
        changed[category, place] += taken - moved_s
    return {key: taken for key, taken in changed.items() if taken > 0}


def slow_samples(logs: Sequence[WorkerLog]) -> tuple[tuple[int, float], ...]:
    """Return the samples that took much longer than the mean, with their seconds, the slowest first."""
    made, busy_s = (sum(log.sums[name] for log in logs) for name in ("samples", "busy_s"))
    least_s = max(_SLOW_S, _SLOW_RATIO * busy_s / made) if made else _SLOW_S
    slowest: dict[int, float] = defaultdict(float)
    for log in logs:
        for index, taken in log.slow.items():
            slowest[index] = max(slowest[index], taken)
    slow = sorted(((taken, index) for index, taken in slowest.items() if taken >= least_s), reverse=True)
    return tuple((index, taken) for taken, index in slow[:10])
