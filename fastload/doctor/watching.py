"""Watching the loaders of this process: what is put in the place of a few of torch's functions, for a while.

The loader that the training chose is the one that is measured: torch's own, or any subclass. Batches,
their order and the random states stay as they were.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torchs
from torch.utils.data._utils import worker as torchs_worker

from fastload.doctor.activities import Frame
from fastload.doctor.clocks import ThreadClock
from fastload.doctor.loads import LoadLog, noting_fetches
from fastload.doctor.records import LoaderRecord
from fastload.doctor.sampling import Sampler
from fastload.doctor.ways import Ways
from fastload.doctor.workers import watched_loop
from fastload.loader.dataloader import DataLoader as FastloadsDataLoader


class Enough(KeyboardInterrupt):
    """Ends a training that has been measured for as long as was asked for."""


class Watcher:
    """Watches all loaders of this process.

    Args:
        folder: Where workers write what they saw.
        steps: End the training after so many batches; None: never.
        seconds: End it so many seconds after the first batch; None: never.
        is_above: Whether a frame is one of those that lead to the script.

    Attributes:
        was_cut: Whether the training was ended because it had been measured for as long as was asked for.
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
        self.was_cut = False
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._clock = ThreadClock()
        # Weakly: a loader that the training lets go of must end its workers, and its place may be another's.
        self._by_iterator: weakref.WeakKeyDictionary[Any, Ways] = weakref.WeakKeyDictionary()
        self._by_loader: weakref.WeakKeyDictionary[Any, Ways] = weakref.WeakKeyDictionary()
        self._ways: list[Ways] = []
        self._current: LoaderRecord | None = None
        # The iterator that handed out last, while it lives; and whether any was asked a second time.
        self._latest: weakref.ref[Any] | None = None
        self._has_gone_on = False
        self._first_at: float | None = None
        self._latest_at = 0.0
        self._handed = 0
        self._sampler = Sampler(self._thread, self._notice)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches until it ends."""
        self._sampler.start()
        try:
            with self._wrapping(), noting_fetches(self._log, lambda: self._sampler.cpu_s):
                yield
        finally:
            self._sampler.stop()
            self._close_step()

    @contextlib.contextmanager
    def _wrapping(self) -> Iterator[None]:
        """Puts what watches in the place of torch's functions, and of fastload's that replaces one."""
        wrapped: list[tuple[Any, str, Any]] = [
            (torchs._BaseDataLoaderIter, "__next__", self._next),
            (DataLoader, "__iter__", self._start),
            # A subclass may make its iterators itself, and need not call `__iter__` of its base.
            (DataLoader, "_get_iterator", self._start),
            (FastloadsDataLoader, "_get_iterator", self._start),
        ]
        originals = [vars(owner)[name] for owner, name, _ in wrapped]
        for (owner, name, watched), original in zip(wrapped, originals, strict=True):
            setattr(owner, name, _method(name, watched, original))
        try:
            yield
        finally:
            for (owner, name, _), original in zip(wrapped, originals, strict=True):
                setattr(owner, name, original)

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

    @property
    def span(self) -> tuple[float, float]:
        """When the first and the latest batch were handed out, by `time.perf_counter`; equal for none."""
        return self._latest_at if self._first_at is None else self._first_at, self._latest_at

    @contextlib.contextmanager
    def _watched_workers(self, loader: str) -> Iterator[None]:
        """Has workers that start meanwhile be watched, as a loader's."""
        workers: Any = torchs_worker
        was_loop = workers._worker_loop
        workers._worker_loop = functools.partial(watched_loop, str(self._folder), loader)
        try:
            yield
        finally:
            workers._worker_loop = was_loop

    def _log(self) -> LoadLog | None:
        record = self._current
        # A forked worker has a copy of this watcher, and notes its own.
        is_waiting = record is not None and record.phase == "waiting" and os.getpid() == self._process
        return record.log if record is not None and is_waiting else None

    def _is_watched(self) -> bool:
        """Whether it is the training's main thread that calls."""
        return threading.get_ident() == self._thread and os.getpid() == self._process

    def _start(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """A loader's iterator, watched: `__iter__`, or `_get_iterator` within it or without it."""
        if not self._is_watched():
            return original(loader)
        ways = self._ways_of(loader)
        if ways.record.phase == "starting":
            iterator = original(loader)
        else:
            iterator = self._start_epoch(ways, lambda: original(loader))
        with contextlib.suppress(TypeError):  # What cannot be referred to weakly is not watched.
            self._by_iterator[iterator] = ways
        return iterator

    def _start_epoch(self, ways: Ways, make: Callable[[], Any]) -> Any:
        self._close_step()
        # What came before is no part of a step with this epoch's batches.
        for each in self._ways:
            each.handed = None
        record = ways.record
        record.begin_start()
        with self._watched_workers(ways.name):
            try:
                return make()
            finally:
                record.end_start()

    def _next(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        ways = self._by_iterator.get(iterator)
        if ways is None or not self._is_watched():
            return original(iterator)
        record = ways.record
        if self._current is not record:
            self._close_step()
        self._stop_if_enough()
        self._has_gone_on = self._has_gone_on or ways.handed is not None
        if ways.handed is not None and 0 < self._handed - ways.handed < len(self._ways):
            record.extend_step(self._clock)
        self._current = record
        clock = ways.clock(iterator)
        copied_s = 0.0 if clock is None else clock.copying_s
        record.ask(self._clock)
        try:
            with self._watched_workers(ways.name) if ways.is_tuned else contextlib.nullcontext():
                batch = original(iterator)
        except BaseException:
            record.end()
            ways.handed = None
            raise
        record = self._current = ways.now(iterator)
        record.hand(batch, self._clock, 0.0 if clock is None else clock.copying_s - copied_s)
        self._note_handed(iterator, ways)
        return batch

    def _note_handed(self, iterator: Any, ways: Ways) -> None:
        self._handed += 1
        ways.handed = self._handed
        self._latest_at = time.perf_counter()
        if self._first_at is None:
            self._first_at = self._latest_at
        self._latest = weakref.ref(iterator, self._let_go)

    def _let_go(self, iterator: Any) -> None:
        """The iterator that handed out last is gone: what comes now is no step of its loader's."""
        self._close_step()
        if not self._has_gone_on:
            # A look at a batch before the training is not yet the training.
            self._first_at = None

    def _close_step(self) -> None:
        if self._current is not None:
            self._current.close_step(self._clock)

    def _stop_if_enough(self) -> None:
        is_late = (
            self._seconds is not None
            and self._first_at is not None
            and time.perf_counter() - self._first_at >= self._seconds
        )
        if is_late or (self._steps is not None and self._handed >= self._steps):
            self._close_step()
            self.was_cut = True
            raise Enough

    def _ways_of(self, loader: Any) -> Ways:
        known = self._by_loader.get(loader)
        if known is None:
            known = Ways(f"loader{len(self._ways)}", loader)
            self._by_loader[loader] = known
            self._ways.append(known)
        return known

    def _notice(self, stack: Sequence[Frame], seconds: float, index: int | None) -> None:
        record = self._current
        if record is None:
            return
        begun = itertools.dropwhile(self._is_above, stack)
        inner = [frame for frame in begun if not frame.file.startswith(_OWN_FOLDER)]
        record.notice(inner, seconds, index, _has_device())


def _method(name: str, watched: Callable[[Any, Any], Any], original: Callable[[Any], Any]) -> Any:
    """A method that is watched, for a class.

    Args:
        name: Its name.
        watched: Called with the instance and the original.
        original: The method that it takes the place of.
    """

    def method(self: Any) -> Any:
        return watched(self, original)

    method.__name__, method.__doc__ = name, original.__doc__
    return method


def _has_device() -> bool:
    """Whether there may be copies to a device."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


_OWN_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
