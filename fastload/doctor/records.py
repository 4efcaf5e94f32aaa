"""What was noted of one loader's training, and how that becomes measurements."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fastload.doctor.activities import Frame, step_activity, users_place, waiting_activity, work_site
from fastload.doctor.clocks import ThreadClock
from fastload.doctor.loads import LoadLog
from fastload.doctor.streams import GpuTimes
from fastload.loader.clock import size_of
from fastload.loader.diagnosis.measurements import SlowSample
from fastload.loader.times import EpochTimes, LoadTimes

_MOST_KEPT = 4096
_MOST_PLACES = 200

# Fewer batches say nothing of an epoch: the first ones were made ahead.
_LEAST_BATCHES = 8

# A sample is called slow if it takes so many times the mean, and long enough to be seen several times.
_SLOW_RATIO = 5
_SLOW_S = 0.05

Phase = Literal["starting", "waiting", "stepping", "outside"]


class _Readings(NamedTuple):
    """The clocks of the training process at a moment, in seconds."""

    at: float
    cpu_s: float
    delayed_s: float

    @classmethod
    def of(cls, clock: ThreadClock) -> _Readings:
        """Reads them."""
        return cls(time.perf_counter(), time.process_time(), clock.delayed_s())


@dataclass(slots=True)
class _Epoch:
    """The batches of an epoch that were waited for, the first one left out, and the sum of the waits."""

    batches: int = 0
    waiting_s: float = 0.0


@dataclass(slots=True)
class LoaderRecord:
    """What was noted of one loader, while it loaded with one number of workers.

    Attributes:
        name: A short one of the loader's own.
        loader: The loader's settings, by name.
        dataset: Its dataset.
        phase: What the training is doing with it now.
        stepping_s: What its steps took. A step that takes batches of other loaders too goes on until this
            one is asked again.
        others_s: How much of that came after another loader had been asked.
        copying_s: What copies to the device took of the waits, where the loader makes them.
        gpu: What the GPU did while the training got batches.
        log: What making batches took the training process.
    """

    name: str
    loader: dict[str, Any]
    dataset: Any
    phase: Phase = "outside"
    epochs: int = 0
    batches: int = 0
    samples: int = 0
    batch_size: int = 0
    batch_bytes: int = 0
    first_wait_s: float = 0.0
    waiting_s: float = 0.0
    stepping_s: float = 0.0
    others_s: float = 0.0
    copying_s: float = 0.0
    receiving_cpu_s: float = 0.0
    training_cpu_s: float = 0.0
    training_delayed_s: float = 0.0
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_KEPT))
    steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_KEPT))
    seen: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    log: LoadLog = field(default_factory=LoadLog)
    gpu: GpuTimes = field(default_factory=GpuTimes)
    _work_sites: set[str] = field(default_factory=set)
    _epochs: list[_Epoch] = field(default_factory=list)
    _is_first: bool = True
    _at: float = 0.0
    _asked_cpu_s: float = 0.0
    _step: _Readings = field(default_factory=lambda: _Readings(0.0, 0.0, 0.0))

    @property
    def total_s(self) -> float:
        """All the time that the training spent on it, and on no other loader."""
        return self.first_wait_s + self.waiting_s + self.stepping_s - self.others_s

    def take_over(self, record: LoaderRecord) -> None:
        """Goes on in the place of a record of the same loader, whose number of workers has changed.

        What is being waited for is the first batch of the new workers: it counts as their start.

        Args:
            record: What has been noted in until now.
        """
        self._at, self._asked_cpu_s = record._at, record._asked_cpu_s
        self.phase, record.phase = record.phase, "outside"
        self._is_first = True
        self.epochs += 1

    def begin_start(self) -> None:
        """An epoch begins: its iterator is being made."""
        self.phase = "starting"
        self._at = time.perf_counter()
        self._is_first = True
        self._epochs.append(_Epoch())

    def end_start(self) -> None:
        """The iterator is made."""
        self.first_wait_s += time.perf_counter() - self._at
        self.epochs += 1
        self.phase = "outside"

    def ask(self, clock: ThreadClock) -> None:
        """The training asks for a batch."""
        self.close_step(clock)
        self.phase = "waiting"
        self.gpu.ask()
        self._asked_cpu_s = clock.cpu_s()
        self._at = time.perf_counter()

    def hand(self, batch: Any, clock: ThreadClock, copied_s: float = 0.0) -> None:
        """It gets one.

        Args:
            batch: The batch.
            clock: Of the main thread.
            copied_s: How long the loader copied it to the device.
        """
        now = time.perf_counter()
        wait_s = now - self._at
        self.gpu.hand(now, 0.0 if self._is_first else wait_s)
        if self._is_first:
            self.first_wait_s += wait_s
            self._is_first = False
        else:
            self.waiting_s += wait_s
            if self._epochs:
                self._epochs[-1].batches += 1
                self._epochs[-1].waiting_s += wait_s
            self.receiving_cpu_s += clock.cpu_s() - self._asked_cpu_s
            self.copying_s += copied_s
            self.waits_s.append(wait_s)
        samples, size = size_of(batch)
        if not self.batches:
            self.batch_size, self.batch_bytes = samples, size
        self.batches += 1
        self.samples += samples
        self.phase = "stepping"
        self._step = _Readings.of(clock)

    def end(self) -> None:
        """The epoch is over: its workers, if they do not live on, have been ended."""
        self.first_wait_s += time.perf_counter() - self._at
        self.phase = "outside"

    def close_step(self, clock: ThreadClock) -> None:
        """The step is over: the training asks for another batch, or another loader's."""
        if self.phase != "stepping":
            return
        self.phase = "outside"
        self.steps_s.append(self._add_step(clock))

    def extend_step(self, clock: ThreadClock) -> None:
        """The step that another loader's asking has closed goes on until now: it takes batches of both."""
        if self.phase == "outside" and self.steps_s:
            more_s = self._add_step(clock)
            self.steps_s[-1] += more_s
            self.others_s += more_s

    def _add_step(self, clock: ThreadClock) -> float:
        """Adds the time since the last reading to the steps, and returns its seconds."""
        before, now = self._step, _Readings.of(clock)
        self._step = now
        self.stepping_s += now.at - before.at
        self.training_cpu_s += now.cpu_s - before.cpu_s
        self.training_delayed_s += now.delayed_s - before.delayed_s
        return now.at - before.at

    def notice(self, stack: Sequence[Frame], seconds: float, index: int | None, has_device: bool) -> None:
        """Notes what the main thread is seen doing.

        Args:
            stack: From the script inwards.
            seconds: Since the look before.
            index: Of the sample that is being made, where that shows.
            has_device: Whether there is a device to copy to.
        """
        if self.phase == "stepping":
            activity = step_activity(stack, has_device=has_device)
            if activity == "work":
                self._work_sites.add(work_site(stack))
            self._add(activity, users_place(stack), seconds)
        elif self.phase == "waiting" and not self._is_first:
            if self.loader["num_workers"]:
                self._add(waiting_activity(stack), "", seconds)
            else:
                self.log.notice(stack, seconds, index)

    def times(self, workers: Sequence[LoadLog]) -> EpochTimes:
        """All epochs as one."""
        loading: tuple[LoadTimes, ...] = tuple(log.times() for log in workers)
        if not self.loader["num_workers"]:
            loading = (self.log.times(),)
        # The host waited, but the GPU was still at the steps before: these took so long.
        hidden_s = min(self.waiting_s, self.gpu.busy_s)
        waiting_s = self.waiting_s - hidden_s
        return EpochTimes(
            num_workers=self.loader["num_workers"],
            prefetch_factor=self.loader["prefetch_factor"],
            batch_size=self.batch_size,
            batches=self.batches,
            samples=self.samples,
            batch_bytes=self.batch_bytes,
            first_wait_s=self.first_wait_s,
            waiting_s=waiting_s,
            stepping_s=self.stepping_s + hidden_s,
            copying_s=min(self.copying_s, waiting_s),
            waits_s=tuple(self.waits_s),
            steps_s=tuple(self.steps_s),
            loading=loading,
        )

    def epoch_waits_s(self) -> tuple[float, ...]:
        """The mean wait for a batch in each epoch that had more than a few."""
        return tuple(
            epoch.waiting_s / epoch.batches for epoch in self._epochs if epoch.batches >= _LEAST_BATCHES
        )

    def training(self) -> dict[tuple[str, str], float]:
        """What the main thread was seen doing, in steps and in waits: seconds by (activity, place)."""
        seen = with_ends_of_work(self.seen, self._work_sites)
        return with_hidden(seen, self.copying_s, self.gpu.behind_s)

    def _add(self, activity: str, place: str, seconds: float) -> None:
        key = activity, place
        if key in self.seen or len(self.seen) < _MOST_PLACES:
            self.seen[key] += seconds


def with_ends_of_work(seen: dict[tuple[str, str], float], sites: set[str]) -> dict[tuple[str, str], float]:
    """What was seen, where the lines that call work are work even when nothing of it is left on the stack.

    Args:
        seen: Seconds by (activity, place).
        sites: The places that call work.
    """
    kept: dict[tuple[str, str], float] = defaultdict(float)
    for (activity, place), taken in seen.items():
        is_end = activity == "model" and place != "" and place in sites
        kept["work" if is_end else activity, place] += taken
    return kept


def with_hidden(
    seen: dict[tuple[str, str], float], copying_s: float, behind_s: float
) -> dict[tuple[str, str], float]:
    """What was seen of the main thread, with what does not show on its stack.

    Args:
        seen: Seconds by (activity, place).
        copying_s: The loader's own copies to the device: they were seen as the taking in of batches.
        behind_s: How long the GPU was still at earlier steps when batches had come: copies of the training's
            own that were seen waiting for that are the model's.
    """
    kept: dict[tuple[str, str], float] = defaultdict(float)
    copied_s = sum(taken for (activity, _), taken in seen.items() if activity == "copy")
    share = min(1.0, behind_s / copied_s) if copied_s > 0 else 0.0
    for (activity, place), taken in seen.items():
        if activity == "receive":
            kept[activity, place] += max(0.0, taken - copying_s)
        elif activity == "copy":
            kept["model", place] += share * taken
            kept[activity, place] += (1 - share) * taken
        else:
            kept[activity, place] += taken
    return {key: taken for key, taken in kept.items() if taken > 0}


def slow_samples(logs: Sequence[LoadLog]) -> tuple[SlowSample, ...]:
    """The samples that took much longer than the mean one."""
    made, busy_s = sum(log.samples for log in logs), sum(log.busy_s for log in logs)
    least_s = max(_SLOW_S, _SLOW_RATIO * busy_s / made) if made else _SLOW_S
    seconds: dict[int, float] = defaultdict(float)
    for log in logs:
        for index, taken in log.slow.items():
            seconds[index] = max(seconds[index], taken)
    slow = sorted(((taken, index) for index, taken in seconds.items() if taken >= least_s), reverse=True)
    return tuple(SlowSample(index, taken) for taken, index in slow[:10])
