"""Watcher of this process's loaders, which temporarily wraps a few of torch's functions.

Batches, their order and the random states do not change.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import pickle
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from fastload.doctor.watching.categories import Stack
from fastload.doctor.watching.machine import GpuWatch
from fastload.doctor.watching.record import LoaderRecord
from fastload.doctor.watching.step_watch import StepWatch
from fastload.doctor.watching.sync import SyncWatch
from fastload.doctor.watching.torch_calls import BaseIterator, end_workers, worker_module
from fastload.doctor.watching.workers import StackSampler, WorkerLog, noting_fetches, watched_loop
from fastload.loader.dataloader import DataLoader as FastloadDataLoader
from fastload.loader.iterators.base import EpochIterator
from fastload.system.patching import patched

# `seconds` does not end a training run before this many batches: fewer cannot be told from warm-up.
_LEAST_HANDED = 4

_OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


class Enough(KeyboardInterrupt):
    """Ends a training run that has been watched for the requested time."""


class Watcher:
    """Watches all loaders of this process; workers write their logs into a folder.

    The training is ended after `steps` batches, or `seconds` after its first step, together with other ranks;
    `was_cut` is then True. Stack samples, if `is_sampling`, begin at the file `script`.
    """

    def __init__(
        self,
        folder: Path,
        steps: int | None = None,
        seconds: float | None = None,
        script: str = "",
        is_sampling: bool = True,
    ) -> None:
        self._folder, self._script = folder, script
        self._steps, self._seconds = steps or math.inf, seconds or math.inf
        self.was_cut = False
        self.batches = 0
        self._thread = os.getpid(), threading.get_ident()
        # Weak, so that a loader that the training drops ends its workers.
        self._by_iterator = weakref.WeakKeyDictionary[object, LoaderRecord]()
        self._by_loader = weakref.WeakKeyDictionary[object, LoaderRecord]()
        self.records: list[LoaderRecord] = []
        self._current: LoaderRecord | None = None
        # The two latest batches. A script frees a batch when it has the next one, and so within a step,
        # although the time for that depends on the loader.
        self._batches: deque[object] = deque(maxlen=2)
        self._made_at = time.perf_counter()
        self._begun_at = math.inf  # when the first step ended, which may have compiled the model
        self._sampler, self._is_sampling = StackSampler(self._notice), is_sampling
        self.sync = SyncWatch()
        self.step = StepWatch()
        self.gpu = GpuWatch()

    @property
    def start_s(self) -> float:
        """The time until the end of the first step, or until now."""
        return min(self._begun_at, time.perf_counter()) - self._made_at

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the loaders that are used in the block, and end their workers after it."""
        kinds: tuple[tuple[type, str, Callable[..., object]], ...] = (
            (BaseIterator, "__next__", self._next),
            (DataLoader, "__iter__", self._start),
            # A subclass may call this directly rather than `__iter__`.
            (DataLoader, "_get_iterator", self._start),
            (FastloadDataLoader, "_get_iterator", self._start),
        )
        wrapped = ((kind, name, _method(vars(kind)[name], call)) for kind, name, call in kinds)
        hook = register_optimizer_step_post_hook(self.step.note_step)
        noting = noting_fetches(self._log, self._sampler.delayed_s)
        try:
            sampler = self._sampler if self._is_sampling else contextlib.nullcontext()
            with sampler, patched(*wrapped), noting, self.sync.watching(), self.step.watching():
                yield
        finally:
            hook.remove()
            self._close_steps()
            self._batches.clear()
            for iterator in list(self._by_iterator):
                end_workers(iterator)

    def logs_of(self, record: LoaderRecord) -> list[WorkerLog]:
        """Return the logs of a loader's workers so far."""
        paths = sorted(self._folder.glob(f"{record.name}-*.log"))
        return [pickle.loads(path.read_bytes()) for path in paths]

    def _watching_workers(self, record: LoaderRecord) -> contextlib.AbstractContextManager[None]:
        """Watch the workers that are started in the block."""
        loop = functools.partial(watched_loop, str(self._folder), record.name)
        return patched((worker_module, "_worker_loop", loop))

    def _log(self) -> WorkerLog | None:
        record = self._current
        # A forked worker has a copy of this watcher, and writes its own log.
        if record is None or record.phase != "waiting" or not self._is_watched():
            return None
        return record.log

    def _readings(self) -> tuple[float, float, int, float, float]:
        cpu_s = time.process_time() - self._sampler.cpu_s
        return cpu_s, self._sampler.delayed_s(), self.step.steps, *self.sync.seconds()

    def _is_watched(self) -> bool:
        return (os.getpid(), threading.get_ident()) == self._thread

    def _start(self, loader: DataLoader[object], original: Callable[[object], object]) -> object:
        """Create a loader's iterator; `_get_iterator` is called by `__iter__` or directly."""
        if not self._is_watched():
            return original(loader)
        record = self._by_loader.get(loader) or self._watch(loader)
        if record.phase == "starting":
            iterator = original(loader)
        else:
            # Time before an epoch, and a validation, belong to no step.
            self._close_steps()
            with record.starting(), self._watching_workers(record):
                iterator = original(loader)
        with contextlib.suppress(TypeError):  # An object without weak references is not watched.
            self._by_iterator[iterator] = record
            # An iterator that the script drops has no further step.
            record.iterator = weakref.ref(iterator, lambda _: record.close_step())
        return iterator

    def _watch(self, loader: DataLoader[object]) -> LoaderRecord:
        """Watch a new loader; one that replaces another, as in each epoch, continues its record."""
        place = tuple((frame.f_code, line) for frame, line in traceback.walk_stack(sys._getframe()))
        record = next((each for each in self.records if each.is_followed_by(loader, place)), None)
        if record is None:
            record = LoaderRecord(f"loader{len(self.records)}", loader, place, self._readings, self.step)
            self.records.append(record)
        else:
            record.is_recreated = True
            record.loader = weakref.ref(loader)
        self._by_loader[loader] = record
        return record

    def _next(self, iterator: object, original: Callable[[object], object]) -> object:
        record = self._by_iterator.get(iterator)
        if record is None or not self._is_watched():
            return original(iterator)
        self._current = record
        record.close_step()
        if math.isinf(self._begun_at) and not record.is_first:
            self._begun_at = time.perf_counter()
        self._stop_if_enough()
        if math.isfinite(self._begun_at):
            self.gpu.read()  # which belongs neither to a step nor to a wait
        fast = iterator if isinstance(iterator, EpochIterator) else None
        copied_s = 0.0 if fast is None else fast.clock.copying_s
        record.ask()
        if len(self._batches) == 2:
            self._batches.popleft()
        try:
            with contextlib.nullcontext() if fast is None else self._watching_workers(record):
                batch = original(iterator)
        except BaseException:
            record.phase = "outside"
            raise
        if fast is not None:
            record.follow(fast.clock)
        if not record.settings.device:
            self._batches.append(batch)
        wait_s = record.hand(batch, 0.0 if fast is None else fast.clock.copying_s - copied_s)
        for other in self.records:
            if other is not record and other.phase == "stepping":
                other.others_s += wait_s
        self.batches += 1
        return batch

    def _close_steps(self) -> None:
        for record in self.records:
            record.close_step()

    def _stop_if_enough(self) -> None:
        is_late = self.batches >= _LEAST_HANDED and time.perf_counter() - self._begun_at >= self._seconds
        if math.isfinite(self._seconds):
            is_late = self.sync.is_end(self.batches, is_late)
        if is_late or self.batches >= self._steps:
            self._close_steps()
            self.was_cut = True
            raise Enough

    def _notice(self, stack: Stack, seconds: float) -> None:
        record = self._current
        if record is not None:
            begun = itertools.dropwhile(lambda frame: self._script not in ("", frame.file), stack)
            scripts = tuple(frame for frame in begun if not frame.file.startswith(_OWN_FOLDER))
            record.notice(scripts, seconds)


def _method(original: Callable[[object], object], watched: Callable[..., object]) -> object:
    """Return a method that calls `watched` with the instance and the original method."""

    @functools.wraps(original)
    def method(self: object) -> object:
        return watched(self, original)

    return method
