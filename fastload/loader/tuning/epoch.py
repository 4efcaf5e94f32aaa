"""An epoch whose way of loading may change between two of its batches.

It begins in the training process, as torch's loader does. Where workers promise more they are started, get
the next indices of the same order, and are measured on the batches that the training asks for anyway:
none is loaded twice, wasted or moved. Whatever goes wrong with workers, the batches that they owe are
loaded by the training process, and workers are not tried again.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch

from fastload.loader.iterators import SingleProcessIterator, WorkersIterator
from fastload.loader.resume import WORKERS, mixed
from fastload.loader.strategy import EpochStart, LoaderView
from fastload.loader.tuning.caching import LoaderCache
from fastload.loader.tuning.footprint import Footprint
from fastload.loader.tuning.order import Order
from fastload.loader.tuning.search import Candidate
from fastload.loader.tuning.tuner import Tuner, line_of
from fastload.loader.tuning.window import Beginning, Window

# A settled plan is compared with what happens so many batches, and seconds, at a time.
_WATCHED_BATCHES = 64
_WATCHED_S = 5.0

# So often in a row it has to have drifted.
_DRIFTS = 2

_NEVER = 1 << 62


class TunedIterator(SingleProcessIterator):
    """Loads an epoch of a map-style dataset, and finds out how to do that best.

    Args:
        view: The loader.
        start: What it begins with.
        tuner: Of the loader.
        cache: The dataset's cache, decided on once it is known what loading takes.
    """

    def __init__(self, view: LoaderView, start: EpochStart, tuner: Tuner, cache: LoaderCache | None) -> None:
        self._tuner = tuner
        self._start = start
        self._view = view
        self._cache = cache
        self._current: WorkersIterator | None = None
        self._leaving: WorkersIterator | None = None
        self._started = 0
        # When workers were last started while nobody else loaded: what it takes them to begin is measured.
        self._beginning: Beginning | None = None
        # How batches are loaded, and since which.
        self._setting, self._changed_at = Candidate(0, 0), 0
        # Whether the next batch is to show what loading does to the dataset.
        self._is_checking = False
        self._handed: Footprint | None = None
        self._drifts = 0
        self._watched_loads = (0, 0.0)
        super().__init__(view, replace(start, options=replace(start.options, num_workers=0)))
        self._order = Order(self._sampler_iter)
        self._is_measuring = tuner.begins_to_measure(self)
        # What an earlier epoch has measured says already where to go on.
        self._is_to_go_on = tuner.is_alone_known and not start.options.num_workers
        self._window = Window(start.clock, 1)
        # The number of batches after which something is to be decided.
        self._due = 1 if self._is_measuring else _WATCHED_BATCHES
        self._has_begun = False

    def draw_first(self) -> None:
        """Makes the sampler draw what it draws at the epoch's beginning."""
        if self._undrawn is not None:
            self._undrawn = None
            self._order.draw_first()

    def _next_index(self) -> Any:
        return next(self._order.rest)

    def _next_batch(self) -> Any:
        if not self._has_begun:
            self._begin_as_planned()
        if self.clock.batches >= self._due:
            self._decide()
        while True:
            # Not `or`: whether workers are true is their length, which a sampler may lack.
            source = self._current if self._leaving is None else self._leaving
            try:
                return self._next_alone() if source is None else self._next_of(source)
            except StopIteration:
                if source is None or source is not self._leaving:
                    self._end()
                    raise
            self._leave()

    def _begin_as_planned(self) -> None:
        """Starts workers with the first batch: the order is drawn then, as it is without workers."""
        self._has_begun = True
        self._note_draw()
        setting = self._start.options
        if setting.num_workers:
            self._go_to(Candidate(setting.num_workers, setting.prefetch_factor or 0))
        if not self._is_measuring:
            self._begin_to_watch()

    def _next_alone(self) -> Any:
        """The next batch, made by the training process."""
        if not self._is_checking:
            return super()._next_batch()
        self._is_checking = False
        before = Footprint(self._view.dataset)
        batch = super()._next_batch()
        if reason := before.change():
            self._tuner.note_check(reason)
        else:
            # What the training does with it is seen when it asks for the next batch.
            self._handed = Footprint(self._view.dataset)
        return batch

    def _next_of(self, workers: WorkersIterator) -> Any:
        """The next batch of some workers; of the training process, where they cannot make it."""
        position = self._progress.position
        failure = None
        try:
            batch = workers._next_batch()
        except StopIteration:
            raise
        except Exception as error:
            failure = error
        if failure is not None:
            try:
                return self._instead_of(workers, failure, position)
            finally:
                # Its traceback refers to this frame.
                del failure
        self._order.sent.popleft()
        return batch

    def _instead_of(self, workers: WorkersIterator, error: Exception, position: int) -> Any:
        """The batch that workers failed to make; where the training process can, they are not asked again."""
        is_theirs = self._progress.position == position
        self._order.take_back_first()
        self._progress.rebase(position, 0)
        try:
            batch = super()._next_batch()
        except Exception:
            if is_theirs:
                self._give_up(error)
            else:
                # A sample that cannot be made anywhere: as without workers, the epoch goes on behind it.
                self._progress.rebase(position + 1, workers.received)
            raise
        self._give_up(error)
        return batch

    def _give_up(self, error: Exception) -> None:
        """Goes on without workers; what they still owe is loaded by the training process."""
        self._tuner.note_check(f"workers failed where the training process does not: {line_of(error)}")
        for workers in (self._leaving, self._current):
            if workers is not None:
                workers.end()
        self._leaving = self._current = None
        self._order.take_back()
        self._settle()

    def _decide(self) -> None:
        """Looks at what was measured, and goes over to what is to be tried next."""
        if self._leaving is not None:
            self._due += 1
        elif self._order.is_drawn:
            self._due = _NEVER
        elif not self._is_measuring:
            self._watch()
        elif self._is_to_go_on:
            self._is_to_go_on = False
            self._go_on()
        elif self._window.is_over(self._setting.num_workers):
            self._note()
            self._go_on()
        else:
            self._due = self._window.due(self._setting.num_workers)

    def _note(self) -> None:
        """Tells the tuner what the window showed."""
        if self._tuner.is_alone_known:
            trial = self._window.trial(self._setting)
            self._tuner.note_trial(trial)
            if self._beginning is not None:
                self._tuner.note_start(self._beginning.seconds(self._window, trial) / self._started)
                self._beginning = None
        else:
            alone = self._window.alone()
            self._tuner.note_alone(self._view, alone)
            if self._cache is not None:
                self._cache.decide(self._view.dataset, alone)

    def _go_on(self) -> None:
        """Goes over to the next candidate, or to the best if none is left."""
        if self._handed is not None:
            self._tuner.note_check(self._handed.change_by_training())
            self._handed = None
        candidate = self._tuner.next()
        if candidate is None:
            self._settle()
        elif candidate.num_workers and not self._tuner.is_checked:
            # One more batch without workers, to see what loading it does to the dataset.
            self._is_checking = self._is_to_go_on = True
            self._due = self.clock.batches + 1
        else:
            self._go_to(candidate)

    def _settle(self) -> None:
        """Ends the search, and goes on with what was best."""
        self._tuner.settle()
        self._is_measuring = False
        self._go_to(self._tuner.best())
        self._begin_to_watch()

    def only_load(self) -> None:
        """Leaves measuring to another epoch, and goes on as it is."""
        self._is_measuring = False
        self._begin_to_watch()

    def _begin_to_watch(self) -> None:
        self._window = Window(self.clock, self.clock.batches)
        self._due = self.clock.batches + _WATCHED_BATCHES
        self._watched_loads = self._loads()

    def _watch(self) -> None:
        """Begins the search anew where batches no longer take what they did when the plan was made."""
        if self._tuner.is_settled and self._have_loads_lightened():
            self._drifts = _DRIFTS
        elif not self._tuner.is_settled or self._window.seconds() < _WATCHED_S:
            self._due += _WATCHED_BATCHES
            return
        else:
            has_drifted = self._tuner.has_drifted(self._window.trial(self._setting))
            self._drifts = self._drifts + 1 if has_drifted else 0
        self._begin_to_watch()
        if self._drifts == _DRIFTS:
            self._tuner.reopen(self)
            self._drifts, self._is_measuring = 0, True
            self._go_to(Candidate(0, 0))

    def _have_loads_lightened(self) -> bool:
        """Whether workers make batches in much less time than the plan was made for."""
        if self._current is None:
            return False
        before, now = self._watched_loads, self._loads()
        batches, busy_s = now[0] - before[0], now[1] - before[1]
        return batches >= _WATCHED_BATCHES // 2 and self._tuner.has_lightened(busy_s / batches)

    def _loads(self) -> tuple[int, float]:
        """The batches that all processes have made so far, and the seconds that it took them to."""
        loads = self.clock.loading()
        # Waits for a CPU left out: they are the other workers' doing.
        return sum(one.batches for one in loads), sum(one.busy_s - one.delayed_s for one in loads)

    def _end(self) -> None:
        """Notes, at the epoch's end, what has been measured of it."""
        if not self._is_measuring:
            return
        self._is_measuring = False
        if self.clock.batches and not self._is_to_go_on:
            if not self._setting.num_workers:
                if self._has_loaded_alone:
                    self._note()
            elif not self._changed_at:
                # Too short an epoch for so many workers: it is what it is, their start included.
                self._tuner.note_trial(self._window.whole_epoch(self._setting))
        self._tuner.stop_measuring()
        if self._tuner.may_settle():
            self._tuner.settle()

    @property
    def _has_loaded_alone(self) -> bool:
        """Whether the window holds a batch that the training process loaded, and nobody else."""
        if self._current is not None or self._leaving is not None:
            return False
        return (
            bool(self._window.batches) if self._tuner.is_alone_known else self.clock.loading()[0].batches > 0
        )

    def _go_to(self, candidate: Candidate) -> None:
        """Loads what comes next in another way."""
        workers, prefetch = candidate
        self._beginning = None
        if not workers:
            if self._current is not None:
                self._current.end_soon()
                self._leaving, self._current = self._current, None
            elif self._leaving is None and self.clock.num_workers:
                self._loads_alone()
        elif self._current is not None and workers <= self._started:
            self._current.steer(workers, prefetch)
        elif not self._has_started(candidate):
            self._settle()
            return
        self._setting, self._changed_at = candidate, self.clock.batches
        # What is in flight was asked for before; then each worker has its first batch to make.
        first = self.clock.batches + len(self._order.sent) + max(1, workers)
        self._window = Window(self.clock, first)
        self._due = self._window.due(workers)
        if self._is_measuring and self._tuner.is_alone_known:
            self._tuner.note_trying(self._window, candidate, not self._changed_at)

    def _has_started(self, candidate: Candidate) -> bool:
        """Starts workers for a candidate, which take over from others; says whether that went well."""
        if self._current is not None:
            self._current.end_soon()
            self._leaving, self._current = self._current, None
        number = self._tuner.to_start(candidate.num_workers)
        options = replace(
            self._start.options,
            num_workers=number,
            prefetch_factor=candidate.prefetch_factor,
            persistent_workers=False,
        )
        # Workers of the epoch's beginning have torch's seeds; later ones must not draw the same again.
        seed = int(self._base_seed)
        seed = mixed(seed, self.clock.batches, WORKERS) if self.clock.batches else seed
        seeds = torch.Generator().manual_seed(seed)
        # They are told what to make when they are steered; before, each of them would be given some.
        start = replace(self._start, options=options, worker_seeds=seeds, order=iter(()))
        beginning = Beginning(self.clock)
        try:
            with warnings.catch_warnings():
                # That forking a process with threads is dangerous: the first batches are watched for that.
                warnings.filterwarnings("ignore", r".*fork\(\)")
                workers = WorkersIterator(self._view, start)
        except Exception as error:
            self._tuner.note_no_workers(error)
            return False
        workers.patience_s = self._tuner.stuck_s()
        workers.notice_deaths_while_waiting()
        if self._leaving is None:
            self._beginning = beginning
            self._progress.rebase(self._progress.position, 0)
        self._current, self._started = workers, number
        workers.go_on_with(self._order)
        workers.steer(*candidate)
        return True

    def _loads_alone(self) -> None:
        self._load_times.begin()
        self.clock.begin(0, None, self._load_times)

    def _leave(self) -> None:
        """Goes over from workers that have handed out all that they had been asked for."""
        self._leaving = None
        self._progress.is_finished = False
        self._progress.rebase(self._progress.position, 0)
        if self._current is None:
            self._loads_alone()
