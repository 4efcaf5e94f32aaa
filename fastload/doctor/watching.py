"""Watching the loaders of this process: what is put in the place of a few of torch's functions, for a while.

The loader that the training chose is the one that is measured: torch's own, or any subclass. Batches,
their order and the random states stay as they were.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torchs
from torch.utils.data._utils import worker as torchs_worker

from fastload.doctor.activities import Frame
from fastload.doctor.clocks import ThreadClock
from fastload.doctor.loads import LoadLog, index_in, noting_fetches
from fastload.doctor.records import LoaderRecord
from fastload.doctor.sampling import Sampler
from fastload.doctor.stacks import stack_of
from fastload.doctor.workers import FOLDER_VARIABLE, LOADER_VARIABLE, watched_loop

_SETTINGS = (
    *("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size"),
    *("drop_last", "multiprocessing_context"),
)


class Enough(KeyboardInterrupt):
    """Ends a training that has been measured for as long as was asked for."""


class Watcher:
    """Watches all loaders of this process.

    Args:
        folder: Where workers write what they saw.
        steps: End the training after so many batches; None: never.
        seconds: End it so many seconds after the first batch; None: never.
        is_above: Whether a frame is one of those that lead to the script.

    """

    def __init__(
        self,
        folder: Path,
        steps: int | None = None,
        seconds: float | None = None,
        is_above: Callable[[Frame], bool] = lambda frame: False,
    ) -> None:
        self._folder = folder
        self._steps = steps
        self._seconds = seconds
        self._is_above = is_above
        self._thread = threading.get_ident()
        self._clock = ThreadClock()
        # Weakly: a loader that the training lets go of must end its workers, and its place may be another's.
        self._by_iterator: WeakKeyDictionary[Any, _Ways] = WeakKeyDictionary()
        self._by_loader: WeakKeyDictionary[Any, _Ways] = WeakKeyDictionary()
        self._ways: list[_Ways] = []
        self._current: LoaderRecord | None = None
        self._first_at: float | None = None
        self._handed = 0
        self._sampler = Sampler(self._thread, self._notice)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches until it ends."""
        kind: Any = torchs._BaseDataLoaderIter
        loaders: Any = DataLoader
        workers: Any = torchs_worker
        was_next, was_iter, was_loop = kind.__next__, loaders.__iter__, workers._worker_loop
        watcher = self

        def __next__(iterator: Any) -> Any:
            return watcher._next(iterator, was_next)

        def __iter__(loader: Any) -> Any:
            return watcher._iter(loader, was_iter)

        kind.__next__ = __next__
        loaders.__iter__ = __iter__
        workers._worker_loop = watched_loop
        os.environ[FOLDER_VARIABLE] = str(self._folder)
        self._sampler.start()
        try:
            with noting_fetches(self._log):
                yield
        finally:
            self._sampler.stop()
            kind.__next__, loaders.__iter__ = was_next, was_iter
            workers._worker_loop = was_loop
            os.environ.pop(FOLDER_VARIABLE, None)
            if self._current is not None:
                self._current.close_step(self._clock)

    @property
    def records(self) -> list[LoaderRecord]:
        """What was noted of each loader: of one that tunes itself, with the workers that it had longest."""
        return [max(ways.records.values(), key=lambda record: record.total_s) for ways in self._ways]

    def logs_of(self, record: LoaderRecord) -> list[LoadLog]:
        """What the loader's workers have written so far."""
        logs = []
        for path in sorted(self._folder.glob(f"{record.name}-*.json")):
            with contextlib.suppress(OSError, ValueError):
                logs.append(LoadLog.load(path))
        return logs

    def _log(self) -> LoadLog | None:
        record = self._current
        is_waiting = record is not None and record.phase == "waiting"
        return record.log if record is not None and is_waiting else None

    def _iter(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        if threading.get_ident() != self._thread:
            return original(loader)
        if self._current is not None:
            self._current.close_step(self._clock)
        ways = self._ways_of(loader)
        record = ways.record
        record.begin_start()
        with _workers_named(ways.name):
            try:
                iterator = original(loader)
            finally:
                record.end_start()
        self._by_iterator[iterator] = ways
        return iterator

    def _next(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        ways = self._by_iterator.get(iterator)
        if ways is None or threading.get_ident() != self._thread:
            return original(iterator)
        record = ways.record
        if self._current is not None and self._current is not record:
            self._current.close_step(self._clock)
        self._stop_if_enough()
        self._current = record
        record.ask(self._clock)
        try:
            with _workers_named(ways.name) if ways.is_tuned else contextlib.nullcontext():
                batch = original(iterator)
        except BaseException:
            record.end()
            raise
        record = self._current = ways.now(iterator)
        record.hand(batch, self._clock)
        self._handed += 1
        if self._first_at is None:
            self._first_at = time.perf_counter()
        return batch

    def _stop_if_enough(self) -> None:
        is_late = (
            self._seconds is not None
            and self._first_at is not None
            and time.perf_counter() - self._first_at >= self._seconds
        )
        if is_late or (self._steps is not None and self._handed >= self._steps):
            if self._current is not None:
                self._current.close_step(self._clock)
            raise Enough

    def _ways_of(self, loader: Any) -> _Ways:
        known = self._by_loader.get(loader)
        if known is None:
            known = _Ways(f"loader{len(self._ways)}", loader)
            self._by_loader[loader] = known
            self._ways.append(known)
        return known

    def _notice(self, stack: Sequence[Frame], seconds: float) -> None:
        record = self._current
        if record is None:
            return
        begun = itertools.dropwhile(self._is_above, stack)
        inner = [frame for frame in begun if not frame.file.startswith(_OWN_FOLDER)]
        index = index_in(stack_of(self._thread)) if record.phase == "waiting" else None
        record.notice(inner, seconds, index, _has_device())


class _Ways:
    """What was noted of one loader, by the number of its workers: fastload's changes that itself.

    Args:
        name: A short one of its own.
        loader: The loader.

    Attributes:
        name: See above.
        is_tuned: Whether the number of workers may change.
        records: By the number of workers.
        record: That of the present number.
    """

    def __init__(self, name: str, loader: Any) -> None:
        self.name = name
        settings = {name: getattr(loader, name, None) for name in _SETTINGS}
        settings["num_workers"] = int(settings["num_workers"] or 0)
        self.is_tuned = settings["is_fastload"] = type(loader).__module__.startswith("fastload.")
        settings["device"] = str(getattr(loader, "device", None) or "")
        settings["epoch_samples"] = _epoch_samples(loader)
        self.record = LoaderRecord(name, settings, loader.dataset)
        self.records = {settings["num_workers"]: self.record}

    def now(self, iterator: Any) -> LoaderRecord:
        """The record of how an iterator loads by now.

        Args:
            iterator: The loader's.
        """
        before = self.record
        clock = getattr(iterator, "clock", None)
        if clock is None or clock.num_workers == before.loader["num_workers"]:
            return before
        if clock.num_workers not in self.records:
            settings = {"num_workers": clock.num_workers, "prefetch_factor": clock.prefetch_factor}
            self.records[clock.num_workers] = LoaderRecord(
                self.name, {**before.loader, **settings}, before.dataset
            )
        self.record = self.records[clock.num_workers]
        self.record.take_over(before)
        return self.record


@contextlib.contextmanager
def _workers_named(name: str) -> Iterator[None]:
    """Lets workers that start meanwhile know whose they are."""
    before = os.environ.get(LOADER_VARIABLE)
    os.environ[LOADER_VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(LOADER_VARIABLE, None)
        else:
            os.environ[LOADER_VARIABLE] = before


def _epoch_samples(loader: Any) -> int | None:
    """How many samples an epoch of a loader has; None where it does not say."""
    with contextlib.suppress(Exception):
        return len(loader) * (loader.batch_size or 1)
    return None


def _has_device() -> bool:
    """Whether there may be copies to a device."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


_OWN_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
