"""What making batches takes a process, and what it is seen doing: in a worker, or in the training process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from torch.utils.data._utils import fetch

from fastload.doctor.activities import Frame, loading_activity, users_place
from fastload.doctor.clocks import ThreadClock
from fastload.loader.diagnosis.measurements import Seen
from fastload.loader.times import LoadTimes

_FETCHERS: tuple[Any, ...] = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)
_FETCH_FILE = fetch.__file__
_MOST_PLACES = 200
_MOST_SLOW = 20


@dataclass(slots=True)
class LoadLog:
    """What was noted of a process that makes batches.

    Attributes:
        batches: How many it made.
        samples: How many samples they hold.
        busy_s: What that took.
        cpu_s: The CPU time of it.
        delayed_s: How much of it no CPU was free.
        process_cpu_s: The CPU time of the whole process from the first batch to the last.
        quickest_s: What the quickest batch took.
        collate_s: What making batches of samples took; 0 where that is not told apart.
        pil_s: How long transforms were seen at work in PIL.
        seen: Seconds by (activity, place).
        slow: By sample, for how long it was seen being made at a stretch: the longest time of all epochs.
        helping_cpu_s: The CPU time of other threads of the process while it made batches: those of OpenCV or
            OpenMP; looking does not count.
    """

    batches: int = 0
    samples: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    delayed_s: float = 0.0
    process_cpu_s: float = 0.0
    quickest_s: float = math.inf
    collate_s: float = 0.0
    pil_s: float = 0.0
    seen: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    slow: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    helping_cpu_s: float = 0.0
    _first_cpu_s: float | None = None
    _sample: int | None = None
    _sample_s: float = 0.0

    def notice(self, stack: Sequence[Frame], seconds: float, index: int | None = None) -> None:
        """Notes what the process is seen doing, where that is making a batch.

        Args:
            stack: Of its main thread, the innermost frame last.
            seconds: Since the look before.
            index: Of the sample that is being made, where that shows.
        """
        begin = next((place for place, frame in enumerate(stack) if frame.file == _FETCH_FILE), None)
        if begin is None:
            self._sample = None
            return
        inner = stack[begin:]
        key = loading_activity(inner), users_place(inner)
        if key[0] == "transform" and any("/PIL/" in frame.file for frame in inner):
            self.pil_s += seconds
        if key in self.seen or len(self.seen) < _MOST_PLACES:
            self.seen[key] += seconds
        self._notice_sample(index, seconds)

    def _notice_sample(self, index: int | None, seconds: float) -> None:
        """Notes for how long a sample is seen being made without a break.

        Not its sum over the epochs, by which every sample would be slow in the end.
        """
        self._sample_s = self._sample_s + seconds if index == self._sample else seconds
        self._sample = index
        if index is not None:
            self.slow[index] = max(self.slow[index], self._sample_s)
            if len(self.slow) > 4 * _MOST_SLOW:
                self.slow = defaultdict(float, self._slowest())

    def note_process(self, began_cpu_s: float, ended_cpu_s: float) -> None:
        """Notes the process's CPU time after a batch.

        Args:
            began_cpu_s: What it was before the batch.
            ended_cpu_s: What it is.
        """
        if self._first_cpu_s is None:
            self._first_cpu_s = began_cpu_s
        self.process_cpu_s = max(0.0, ended_cpu_s - self._first_cpu_s)

    def note_batch(self, busy_s: float, samples: int) -> None:
        """Notes what making a batch took.

        Args:
            busy_s: In seconds.
            samples: How many samples it holds.
        """
        self.quickest_s = min(self.quickest_s, busy_s)
        self.batches += 1
        self.samples += samples
        self.busy_s += busy_s
        self._sample = None

    def times(self) -> LoadTimes:
        """What making the batches took."""
        return LoadTimes(self.batches, self.samples, self.busy_s, self.cpu_s, self.delayed_s, self.collate_s)

    def save(self, path: Path) -> None:
        """Writes it to a file, which another process may read at any time."""
        content = {
            "numbers": [
                self.batches,
                self.samples,
                self.busy_s,
                self.cpu_s,
                self.delayed_s,
                self.process_cpu_s,
                self.quickest_s,
                self.collate_s,
                self.pil_s,
            ],
            "seen": [[*key, seconds] for key, seconds in list(self.seen.items())],
            "slow": list(self._slowest().items()),
        }
        part = path.with_suffix(".part")
        part.write_text(json.dumps(content), encoding="utf-8")
        os.replace(part, path)

    @classmethod
    def load(cls, path: Path) -> LoadLog:
        """Reads what `save` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        log = cls(*content["numbers"])
        log.seen.update({(activity, place): seconds for activity, place, seconds in content["seen"]})
        log.slow.update(dict(content["slow"]))
        return log

    def _slowest(self) -> dict[int, float]:
        # A copy: the thread that looks may add to it.
        top = sorted(self.slow.copy().items(), key=lambda item: -item[1])[:_MOST_SLOW]
        return dict(top)


def as_seen(seconds: dict[tuple[str, str], float]) -> tuple[Seen, ...]:
    """Seconds by (activity, place) as findings, the longest first."""
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return tuple(Seen(activity, place, taken) for (activity, place), taken in ordered)  # type: ignore[arg-type]


def index_in(frames: Sequence[FrameType]) -> int | None:
    """The index of the sample that is being made, as torch's fetcher has it in a variable."""
    for frame in frames:
        if frame.f_code.co_filename == _FETCH_FILE:
            with contextlib.suppress(Exception):
                index = frame.f_locals.get("idx")
                if isinstance(index, int):
                    return index
    return None


@contextlib.contextmanager
def noting_fetches(
    current: Callable[[], LoadLog | None], looking_cpu_s: Callable[[], float]
) -> Iterator[None]:
    """Notes what torch's fetchers take in this process.

    Args:
        current: Gives what to note a fetch in; None: nothing is noted.
        looking_cpu_s: Gives the CPU time of looking so far, which is not the loader's.
    """
    originals = [kind.fetch for kind in _FETCHERS]
    clocks: dict[int, ThreadClock] = {}

    def clock_here() -> ThreadClock:
        # One for each process, not one for each batch: it holds a file open.
        process = os.getpid()
        if process not in clocks:
            clocks[process] = ThreadClock()
        return clocks[process]

    def noted(original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch_noted(self: Any, possibly_batched_index: Any) -> Any:
            log = current()
            if log is None:
                return original(self, possibly_batched_index)
            clock = clock_here()
            began_cpu_s = time.process_time() - looking_cpu_s()
            began, cpu_s, delayed_s = time.perf_counter(), clock.cpu_s(), clock.delayed_s()
            with _collating_timed(self, log):
                batch = original(self, possibly_batched_index)
            log.note_batch(time.perf_counter() - began, count_in(possibly_batched_index))
            own_cpu_s = clock.cpu_s() - cpu_s
            log.cpu_s += own_cpu_s
            ended_cpu_s = time.process_time() - looking_cpu_s()
            log.helping_cpu_s += max(0.0, ended_cpu_s - began_cpu_s - own_cpu_s)
            log.delayed_s += clock.delayed_s() - delayed_s
            log.note_process(began_cpu_s, ended_cpu_s)
            return batch

        return fetch_noted

    for kind, original in zip(_FETCHERS, originals, strict=True):
        kind.fetch = noted(original)
    try:
        yield
    finally:
        for kind, original in zip(_FETCHERS, originals, strict=True):
            kind.fetch = original
        for clock in clocks.values():
            clock.close()


@contextlib.contextmanager
def _collating_timed(fetcher: Any, log: LoadLog) -> Iterator[None]:
    """Notes what a fetcher's `collate_fn` takes; fastload's own makes samples too, and is left alone."""
    collate = fetcher.collate_fn
    if type(collate).__module__.startswith("fastload."):
        yield
        return

    def timed(samples: Any) -> Any:
        began = time.perf_counter()
        batch = collate(samples)
        log.collate_s += time.perf_counter() - began
        return batch

    fetcher.collate_fn = timed
    try:
        yield
    finally:
        fetcher.collate_fn = collate


def count_in(asked: Any) -> int:
    """How many samples a fetcher was asked for."""
    indices = getattr(asked, "indices", asked)
    try:
        return len(indices)
    except TypeError:
        return 1
