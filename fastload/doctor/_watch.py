"""Watching the loaders of this process: a few of torch's functions are wrapped for a while.

Batches, their order and the random states stay as they are.
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
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torchs
from torch.utils.data._utils import worker as torchs_worker

from fastload.doctor._categories import Frame
from fastload.doctor._patching import patched
from fastload.doctor._profile import Sampler
from fastload.doctor._record import LoaderRecord, LoaderSettings
from fastload.doctor._workers import ThreadClock, WorkerLog, noting_fetches, watched_loop
from fastload.loader.dataloader import DataLoader as FastloadDataLoader

# A training that `seconds` ends has given so many batches: with fewer, no step can be told from warm-up.
_LEAST_HANDED = 4


class Enough(KeyboardInterrupt):
    """Ends a training that has been measured for as long as was asked for."""


class _Watched:
    """One loader: a record for each number of workers that it has had, since fastload's changes it itself."""

    def __init__(
        self,
        name: str,
        loader: DataLoader[Any],
        make_record: Callable[[str, LoaderSettings, int], LoaderRecord],
    ) -> None:
        self.name = name
        self.view = LoaderSettings(loader)
        self.make_record = make_record
        self.record = make_record(name, self.view, self.view.options["num_workers"])
        self.records = {self.record.num_workers: self.record}
        self.loader = weakref.ref(loader)
        # Batches that all loaders had handed out when this one last did; None before its first of an epoch.
        self.handed: int | None = None

    def is_followed_by(self, loader: DataLoader[Any]) -> bool:
        """Return whether a loader is like this one, which is gone."""
        options, number = self.view.options, getattr(loader, "num_workers", None)
        return (
            self.loader() is None
            and self.view.dataset is loader.dataset
            and self.view.kind is type(loader)
            and (options["batch_size"], options["num_workers"]) == (loader.batch_size, number)
        )

    def clock(self, iterator: Any) -> Any:
        """Return the clock of an iterator of fastload's."""
        return getattr(iterator, "clock", None) if self.view.is_fastload else None

    def record_of(self, iterator: Any) -> LoaderRecord:
        """Return the record of the number of workers that an iterator has by now."""
        clock = self.clock(iterator)
        if clock is not None and clock.num_workers != self.record.num_workers:
            before, workers = self.record, clock.num_workers
            self.record = self.records.setdefault(workers, self.make_record(self.name, self.view, workers))
            self.record.prefetch_factor = clock.prefetch_factor
            self.record.take_over(before)
        return self.record


class Watcher:
    """Watches all loaders of this process; workers write their notes into a folder.

    The training ends after so many batches (`steps`), or so many seconds after its first step; then `was_cut`
    is True. Stacks begin at the script's file.
    """

    def __init__(
        self,
        folder: Path,
        steps: int | None = None,
        seconds: float | None = None,
        script: str = "",
    ) -> None:
        self._folder = folder
        self._steps = steps
        self._seconds = seconds
        self._script = script
        self.was_cut = False
        self.batches = 0
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._clock = ThreadClock()
        # Weakly: a loader that the training lets go of must end its workers, and its place may be another's.
        self._by_iterator: weakref.WeakKeyDictionary[Any, _Watched] = weakref.WeakKeyDictionary()
        self._by_loader: weakref.WeakKeyDictionary[Any, _Watched] = weakref.WeakKeyDictionary()
        self._watched: list[_Watched] = []
        self._current: LoaderRecord | None = None
        # The iterator that handed out last, while it lives; and whether any was asked a second time.
        self._latest: weakref.ref[Any] | None = None
        self._has_gone_on = False
        self._optimizer_steps = self._steps_before = 0
        self._first_at: float | None = None
        self._latest_at = 0.0
        self._sampler = Sampler(self._thread, self._notice)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until it ends."""
        hook = register_optimizer_step_post_hook(self._note_optimizer_step)
        self._sampler.start()
        try:
            with self._wrapped(), noting_fetches(self._log):
                yield
        finally:
            hook.remove()
            self._sampler.stop()
            self._close_step()

    def _wrapped(self) -> contextlib.AbstractContextManager[None]:
        replacements = (
            (torchs._BaseDataLoaderIter, "__next__", self._next),
            (DataLoader, "__iter__", self._start),
            # A subclass may make its iterators itself, and need not call `__iter__` of its base.
            (DataLoader, "_get_iterator", self._start),
            (FastloadDataLoader, "_get_iterator", self._start),
        )
        return patched(*((kind, name, _method(vars(kind)[name], call)) for kind, name, call in replacements))

    @property
    def records(self) -> list[LoaderRecord]:
        """The record of each loader, with the number of workers that handed out most batches."""
        return [max(each.records.values(), key=lambda record: record.batches) for each in self._watched]

    def logs_of(self, record: LoaderRecord) -> list[WorkerLog]:
        """Return what the loader's workers have written so far."""
        logs = []
        for path in sorted(self._folder.glob(f"{record.name}-*.json")):
            with contextlib.suppress(OSError, ValueError):
                logs.append(WorkerLog.load(path))
        return logs

    @property
    def span(self) -> tuple[float, float]:
        """The times of the first and the latest batch, by `time.perf_counter`; equal for none."""
        return self._latest_at if self._first_at is None else self._first_at, self._latest_at

    def _watched_workers(self, loader: str) -> contextlib.AbstractContextManager[None]:
        """Have workers that start meanwhile be watched, as those of a loader."""
        loop = functools.partial(watched_loop, str(self._folder), loader)
        return patched((torchs_worker, "_worker_loop", loop))

    def _log(self) -> WorkerLog | None:
        record = self._current
        # A forked worker has a copy of this watcher, and notes its own.
        is_waiting = record is not None and record.phase == "waiting" and os.getpid() == self._process
        return record.log if record is not None and is_waiting else None

    def _is_watched(self) -> bool:
        return threading.get_ident() == self._thread and os.getpid() == self._process

    def _note_optimizer_step(self, *_: Any) -> None:
        self._optimizer_steps += 1

    def _start(self, loader: DataLoader[Any], original: Callable[[Any], Any]) -> Any:
        """Make a loader's iterator, watched: `__iter__`, or `_get_iterator` within it or without it."""
        if not self._is_watched():
            return original(loader)
        watched = self._by_loader.get(loader) or self._watch(loader)
        if watched.record.phase == "starting":
            iterator = original(loader)
        else:
            iterator = self._start_epoch(watched, lambda: original(loader))
        with contextlib.suppress(TypeError):  # An object without weak references is not watched.
            self._by_iterator[iterator] = watched
        return iterator

    def _watch(self, loader: DataLoader[Any]) -> _Watched:
        """Watch a new loader; one in the place of another that is gone, as in each epoch, goes on with it."""
        found = next((each for each in self._watched if each.is_followed_by(loader)), None)
        if found is None:
            found = _Watched(f"loader{len(self._watched)}", loader, self._new_record)
            self._watched.append(found)
        found.loader = weakref.ref(loader)
        self._by_loader[loader] = found
        return found

    def _new_record(self, name: str, view: LoaderSettings, workers: int) -> LoaderRecord:
        return LoaderRecord(
            name, view, workers, self._clock, lambda: time.process_time() - self._sampler.cpu_s
        )

    def _start_epoch(self, watched: _Watched, make: Callable[[], Any]) -> Any:
        self._close_step()
        # The time before is no part of a step with this epoch's batches.
        for each in self._watched:
            each.handed = None
        with watched.record.starting(), self._watched_workers(watched.name):
            return make()

    def _next(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        watched = self._by_iterator.get(iterator)
        if watched is None or not self._is_watched():
            return original(iterator)
        record = watched.record
        if self._current is not record:
            self._close_step()
        elif record.phase == "stepping":
            self._note_use(record)
        self._stop_if_enough()
        self._has_gone_on = self._has_gone_on or watched.handed is not None
        if watched.handed is not None and 0 < self.batches - watched.handed < len(self._watched):
            record.extend_step()
        self._current = record
        clock = watched.clock(iterator)
        copied_s = 0.0 if clock is None else clock.copying_s
        record.ask()
        try:
            with self._watched_workers(watched.name) if clock is not None else contextlib.nullcontext():
                batch = original(iterator)
        except BaseException:
            record.phase = "outside"
            watched.handed = None
            raise
        record = self._current = watched.record_of(iterator)
        record.hand(batch, 0.0 if clock is None else clock.copying_s - copied_s)
        self._note_handed(iterator, watched)
        return batch

    def _note_use(self, record: LoaderRecord) -> None:
        record.trained += self._optimizer_steps > self._steps_before
        record.without_grad += not torch.is_grad_enabled()

    def _note_handed(self, iterator: Any, watched: _Watched) -> None:
        self.batches += 1
        self._steps_before = self._optimizer_steps
        watched.handed = self.batches
        self._latest_at = time.perf_counter()
        if self._first_at is None or self.batches == 2:
            # The user's seconds begin after the first step, which may compile the model.
            self._first_at = self._latest_at
        self._latest = weakref.ref(iterator, self._let_go)

    def _let_go(self, iterator: Any) -> None:
        """End the step: the iterator that handed out last is gone."""
        self._close_step()
        if not self._has_gone_on:
            # A look at a batch before the training is not yet the training.
            self._first_at = None

    def _close_step(self) -> None:
        if self._current is not None:
            self._current.close_step()

    def _stop_if_enough(self) -> None:
        is_late = (
            self._seconds is not None
            and self._first_at is not None
            and self.batches >= _LEAST_HANDED
            and time.perf_counter() - self._first_at >= self._seconds
        )
        if is_late or (self._steps is not None and self.batches >= self._steps):
            self._close_step()
            self.was_cut = True
            raise Enough

    def _notice(self, stack: Sequence[Frame], seconds: float) -> None:
        record = self._current
        if record is not None:
            begun = itertools.dropwhile(lambda frame: self._script not in ("", frame.file), stack)
            record.notice([frame for frame in begun if not frame.file.startswith(_OWN_FOLDER)], seconds)


def _method(original: Any, watched: Callable[[Any, Any], Any]) -> Any:
    """Return a method that calls `watched` with the instance and the original method."""

    @functools.wraps(original)
    def method(self: Any) -> Any:
        return watched(self, original)

    return method


_OWN_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
