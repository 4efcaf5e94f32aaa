"""The tuner of one loader: what has been measured so far, what to try next, and the plan that follows.

It lives as long as the loader. Epochs tell it what they measured; it changes nothing by itself.
"""

from __future__ import annotations

import dataclasses
import statistics
import weakref
from typing import Any

from fastload.loader.strategy import LoaderView, WorkerOptions
from fastload.loader.tuning import kept
from fastload.loader.tuning.decide import decide
from fastload.loader.tuning.drift import has_drifted, has_lightened
from fastload.loader.tuning.limits import limits_of
from fastload.loader.tuning.pinning import pinning_gain, uses_cuda
from fastload.loader.tuning.plan import Alone, Limits, Measurements, Plan, Trial
from fastload.loader.tuning.search import Candidate, best_candidate, next_candidate, untried_candidate
from fastload.loader.tuning.window import Window

_NOT_YET = Limits(cpus=1, most_workers=0, most_batches=0, reason="", start_s=0.0)

# A plan is worth keeping, and finding again, where measuring it anew would take time that somebody notices.
_WORTH_KEEPING_S = 1.0

# After trials of so long, an epoch's end is the end of them: what is left would only confirm what is known.
_ENOUGH_S = 5.0

# So long, and over so many epochs, it is tried at most; then the best of what was tried is done.
_MOST_TRIALS_S = 8.0
_MOST_EPOCHS = 4

# Of an epoch that was left, so many batches say something of how they were loaded.
_LEAST_LEFT = 8

# A plan that no longer fits is measured anew so often at the most.
_MOST_REOPENINGS = 3

# Where starting a worker takes no longer than this, more are started than are tried first: the rest wait for
# their trial.
_CHEAP_START_S = 0.2
_SPARE = 2

# Workers that have not sent a batch after so long, and so many times what the training process needs for one,
# are taken to be stuck (by a lock that was held when they were forked, by a thread that they lack).
_STUCK_S = 60.0
_STUCK_LOADS = 30


class Tuner:
    """Decides what a user left unsaid of one loader.

    Args:
        view: The loader.
    """

    def __init__(self, view: LoaderView) -> None:
        self._said = said = dict(view.explicit)
        self._measured = Measurements(said, _NOT_YET, batches=view.batches)
        self._origin = "measured in this run"
        self._plan: Plan | None = None
        self._key: str | None = None
        self._is_settled = "num_workers" in said
        self._reopenings = 0
        self._trials_s, self._epochs = 0.0, 0
        self._was_filling = False
        # What is being tried, until its trial is noted: of an epoch that is left, it is noted with the next.
        self._unfinished: tuple[Window, Candidate, bool] | None = None
        self._starts_s: list[float] = []
        #: Whether it is known what loading does to the dataset.
        self.is_checked = False
        self._measuring: weakref.ref[Any] | None = None
        if view.is_iterable:
            self.note_check(
                "each worker would get all samples of an iterable dataset, unless that shares them out"
            )
            self._is_settled = True
        self._mode = kept.mode()
        if self._mode == "off" and not self._is_settled:
            self._is_settled = True
            self.note_check("FASTLOAD_PLAN=off: nothing is tried")

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to be measured."""
        return self._is_settled

    @property
    def is_alone_known(self) -> bool:
        """Whether it has been measured what a batch takes without workers."""
        return self._measured.alone is not None

    @property
    def plan(self) -> Plan:
        """What follows from what has been measured so far."""
        if self._plan is None:
            plan = decide(self._measured, self._origin)
            self._plan = dataclasses.replace(plan, is_settled=self._is_settled)
        return self._plan

    def options(self) -> WorkerOptions:
        """How the next epoch is to begin."""
        if self._is_settled:
            plan = self.plan
            return self._options_of(Candidate(plan.num_workers.value, plan.prefetch_factor.value or 0))
        chosen = self.best()
        if self.is_checked:
            chosen = self.next() or chosen
        return self._options_of(chosen)

    def open(self, view: LoaderView) -> None:
        """Looks, before the first epoch, for the plan that an earlier run has kept."""
        if self._key is not None or self._is_settled:
            return
        self._key = kept.key_of(kept.parts_of(view))
        plan = None if self._mode == "fresh" else kept.read_plan(self._key)
        if plan is None or plan.measured.batches != self._measured.batches:
            return
        limits = limits_of(view, plan.measured.alone.batch_bytes if plan.measured.alone else 0)
        if limits.most_workers < int(plan.num_workers.value):
            return
        # What starting a worker took was measured then; now there is only a guess.
        limits = dataclasses.replace(limits, start_s=plan.measured.limits.start_s)
        measured = dataclasses.replace(plan.measured, said=self._said, limits=limits)
        self._change(**{field.name: getattr(measured, field.name) for field in dataclasses.fields(measured)})
        self._origin = "measured in an earlier run, and kept"
        self._is_settled = self.is_checked = True

    def note_alone(self, view: LoaderView, alone: Alone) -> None:
        """Takes note of what a batch takes without workers."""
        self.note_limits(limits_of(view, alone.batch_bytes))
        self._change(
            alone=alone,
            has_cuda=uses_cuda(),
            pinning_gain=pinning_gain(alone.batch_bytes) if self._may_pin() else None,
        )

    def note_trial(self, trial: Trial) -> None:
        """Takes note of what was tried."""
        self._unfinished = None
        self._change(trials=(*self._measured.trials, trial))
        self._trials_s += trial.seconds

    def note_trying(self, window: Window, candidate: Candidate, is_whole: bool) -> None:
        """Takes note of what is being tried from now on.

        Args:
            window: What will be seen of it.
            candidate: How batches are loaded.
            is_whole: Whether they are from the epoch's first on.
        """
        self._unfinished = window, candidate, is_whole

    def take_up(self, is_filling: bool) -> None:
        """Begins another epoch: with what the one before left behind, and for as long as there is to try.

        Args:
            is_filling: Whether a cache of the dataset is on the way to hold what it is to hold. What was
                measured until then is no good after it.
        """
        if self._was_filling and not is_filling:
            self._begin_anew()
        self._was_filling = is_filling
        if self._is_settled:
            return
        if self._unfinished is not None and self.is_alone_known:
            window, candidate, is_whole = self._unfinished
            self._unfinished = None
            if window.batches >= _LEAST_LEFT:
                self.note_trial(window.trial(candidate))
            elif is_whole and window.clock.batches:
                self.note_trial(window.whole_epoch(candidate))
        self._epochs += self.is_alone_known
        if self._epochs > _MOST_EPOCHS and (self._measured.trials or self.next() is None):
            self.settle()

    def _begin_anew(self) -> None:
        if "num_workers" in self._said or self._measured.only_alone or self._mode == "off":
            return
        self._forget("measured in this run")

    def _forget(self, origin: str) -> None:
        """Leaves nothing of what was measured, and everything to be tried again."""
        self._is_settled, self._unfinished, self._origin = False, None, origin
        self._trials_s, self._epochs, self._starts_s = 0.0, 0, []
        self._change(alone=None, trials=())

    def note_check(self, reason: str) -> None:
        """Takes note of whether workers may load, which has been looked into.

        Args:
            reason: Why they must not, as a sentence; "" if they may.
        """
        self.is_checked = True
        if reason:
            self._change(only_alone=reason)

    def note_no_workers(self, error: Exception) -> None:
        """Takes note of why workers cannot be started."""
        self.note_check(f"workers cannot be started: {line_of(error)}")

    def next(self) -> Candidate | None:
        """What to try next; None if everything has been, or enough."""
        if self._is_settled or (self._trials_s >= _MOST_TRIALS_S and self._measured.trials):
            return None
        return next_candidate(self._measured)

    def may_settle(self) -> bool:
        """Whether, at an epoch's end, what is left would only confirm what is known."""
        measured = self._measured
        if measured.alone is None:
            return False
        is_tried = bool(measured.trials) and untried_candidate(measured) is None
        return self.next() is None or (is_tried and self._trials_s >= _ENOUGH_S)

    def best(self) -> Candidate:
        """The best of what was tried."""
        return best_candidate(self._measured)

    def to_start(self, num_workers: int) -> int:
        """How many workers to start where so many are to load: while more may be tried, some to spare.

        Args:
            num_workers: How many are to load.
        """
        limits = self._measured.limits
        if self._is_settled or limits.start_s > _CHEAP_START_S:
            return num_workers
        return max(num_workers, min(_SPARE * num_workers, limits.most_workers))

    @property
    def is_off(self) -> bool:
        """Whether the user wants nothing to be tried."""
        return self._mode == "off"

    def note_limits(self, limits: Limits) -> None:
        """Takes note of what the loader may take."""
        start_s = statistics.median(self._starts_s) if self._starts_s else limits.start_s
        self._change(limits=dataclasses.replace(limits, start_s=start_s))

    def note_start(self, seconds: float) -> None:
        """Takes note of what starting a worker took, in seconds."""
        self._starts_s.append(seconds)
        self.note_limits(self._measured.limits)

    def stuck_s(self) -> float:
        """After how many seconds of waiting for a batch workers are taken to be stuck."""
        alone = self._measured.alone
        return _STUCK_S + (_STUCK_LOADS * alone.load_s if alone is not None else 0.0)

    def begins_to_measure(self, epoch: Any) -> bool:
        """Whether an epoch is the one that measures: it is the latest; others that go on only load.

        Args:
            epoch: Its iterator.
        """
        if self._is_settled:
            return False
        before = None if self._measuring is None else self._measuring()
        if before is not None and before is not epoch:
            # It may have been left, and not be gone yet.
            before.only_load()
        self._measuring = weakref.ref(epoch)
        return True

    def stop_measuring(self) -> None:
        """Lets another epoch measure: this one has said all that it has to say."""
        self._measuring = self._unfinished = None

    def settle(self) -> None:
        """Ends the search, and keeps its plan for later runs."""
        self.stop_measuring()
        if self._is_settled:
            return
        self._is_settled, self._plan = True, None
        if self._key is not None and self._trials_s >= _WORTH_KEEPING_S and not self._measured.only_alone:
            kept.write_plan(self._key, self.plan)

    def has_drifted(self, lately: Trial) -> bool:
        """Whether the training waits for batches that take longer than the plan was made for.

        Args:
            lately: The latest batches.
        """
        return self._may_reopen and has_drifted(self._measured, self.best(), lately)

    def has_lightened(self, load_s: float) -> bool:
        """Whether loading has become so much cheaper that the plan's workers may not be needed.

        Args:
            load_s: What making a batch takes a worker, lately.
        """
        return self._may_reopen and has_lightened(self._measured, self.best(), load_s)

    @property
    def _may_reopen(self) -> bool:
        return self._reopenings < _MOST_REOPENINGS

    def reopen(self, epoch: Any) -> None:
        """Begins the search anew, because a plan no longer fits.

        Args:
            epoch: The iterator of the epoch that saw it, and that measures from now on.
        """
        self._forget(
            "measured again in this run, because batches took much longer than they had, or far less"
        )
        self._reopenings += 1
        self.begins_to_measure(epoch)
        if self._key is not None:
            kept.forget_plan(self._key)

    def _change(self, **measured: Any) -> None:
        self._measured = dataclasses.replace(self._measured, **measured)
        self._plan = None

    def _options_of(self, chosen: Candidate) -> WorkerOptions:
        return WorkerOptions(
            chosen.num_workers,
            chosen.prefetch_factor or None,
            bool(self.plan.pin_memory.value),
            bool(self._said.get("persistent_workers", False)),
        )

    def _may_pin(self) -> bool:
        said = self._said
        return "pin_memory" not in said and said.get("device") is None and uses_cuda()


def line_of(error: Exception) -> str:
    """What an error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else repr(error)
