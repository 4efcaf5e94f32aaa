"""Events of a loader's epochs: each gives another `Tuning`, and what the loader does until the next event.

    event(tuning, …) -> (tuning, action)

All are pure functions: nothing is measured, started or changed here. The loader reports what it sees
(`Look`), and carries out the `Action`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from fastload.loader.clock import StepClock, total_of
from fastload.loader.measurements import WorkerLimits
from fastload.loader.tuning.tuning import Tuning
from fastload.loader.tuning.window import Window, latest

_P = ParamSpec("_P")
_Action = TypeVar("_Action")


class Action(NamedTuple):
    """Next step of the loader, until the next event.

    Attributes:
        window: The batches that are measured next; its number of workers loads them.
        due: The number of batches after which the loader looks again; None: no more in this epoch.
        checks_dataset: True if the next batch has to show that loading and training leave the dataset as it
            is.
    """

    window: Window
    due: int | None
    checks_dataset: bool = False

    @property
    def ends_workers(self) -> bool:
        """True if workers are not needed any more."""
        return self.due is None and not self.window.workers


class Look(NamedTuple):
    """An epoch as the loader sees it.

    Attributes:
        clock: The times until now, which are only read.
        position: The number of the epoch's batches that have been handed out, before a resume too.
        requested: Batches that workers have been asked for.
        started: Workers that load or are idle.
        is_drawn: True if workers have been asked for all of the epoch.
    """

    clock: StepClock
    position: int = 0
    requested: int = 0
    started: int = 0
    is_drawn: bool = False


Step = tuple[Tuning, Action]


class Tuner:
    """Owner of one loader's tuning, as long as the loader lives; its epochs report events to it."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning

    def note(
        self, event: Callable[Concatenate[Tuning, _P], tuple[Tuning, _Action]], *of: _P.args, **by: _P.kwargs
    ) -> _Action:
        """Apply an event, and return what to do."""
        self.tuning, action = event(self.tuning, *of, **by)
        return action


def epoch_announced(tuning: Tuning, batches: int | None) -> tuple[Tuning, None]:
    """Prepare for an epoch of this many batches; None: of as many as the latest complete one."""
    if batches is not None and batches != tuning.batches:
        tuning = replace(tuning, batches=batches)
    return tuning.settled_if_done(), None


def epoch_watched(tuning: Tuning, clock: StepClock) -> tuple[Tuning, None]:
    """Begin the search again if a settled plan no longer fits the epoch that was loaded by it."""
    settings, workers = tuning.settings, clock.num_workers
    if tuning.single_process is None or tuning.why_no_workers or clock.batches < settings.least_watched:
        return tuning, None
    epoch, load = Window(workers).trial(clock, settings, since=0), total_of(clock.loading())
    # The kernel's delays may include some of before a batch.
    load_s = max(0.0, load.busy_s - load.delayed_s) / max(1, load.batches)
    cost = tuning.cost
    lost_s = epoch.seconds - epoch.batches * tuning.single_process_s if workers else 0.0
    if lost_s > tuning.tolerated_loss_s(workers):
        reason = "batches took longer than without workers"
    elif workers and settings.changed * load_s < cost.load_s:
        reason = "making a batch takes less than it did"
    elif not workers and load_s > settings.changed * cost.load_s and epoch.seconds >= settings.watched_s:
        reason = "making a batch takes longer than it did"
    else:
        return tuning, None
    return tuning.to_be_measured_again(reason, max(0.0, lost_s)), None


def epoch_begun(tuning: Tuning, look: Look) -> Step:
    """Choose the number of workers for the first batch of an epoch."""
    return _loading_by(tuning, Window(), tuning.following, look)


def limits_read(tuning: Tuning, limits: WorkerLimits, has_cuda: bool) -> tuple[Tuning, None]:
    """Record the resources of the machine, and if this process uses a CUDA device."""
    return replace(tuning, limits=limits, has_cuda=has_cuda), None


def looked(tuning: Tuning, window: Window, look: Look) -> Step:
    """Record the times since the last look; if a window is over, choose the next number of workers."""
    clock, settings = look.clock, tuning.settings
    tuning, window = _accounted(tuning, window, clock)
    if window.is_over(clock, settings):
        tuning = _measured(tuning, window, clock)
    elif window.workers and tuning.is_behind():
        tuning = tuning.after_trial(window.trial(clock, settings, window.since))
    else:
        return tuning, Action(window, window.next_look(clock))
    return _continued(tuning, window, look)


def dataset_checked(tuning: Tuning, window: Window, look: Look) -> Step:
    """Record that neither loading nor training a batch changed the dataset, so that workers may load."""
    tuning, window = _accounted(tuning, window, look.clock)
    return _continued(replace(tuning, is_dataset_checked=True), window, look)


def workers_began(tuning: Tuning, seconds: float, workers: int) -> tuple[Tuning, None]:
    """Record how long these workers took from their start to their first batch."""
    load_s = 0.0 if tuning.single_process is None else tuning.single_process.load_s
    return replace(tuning, starts_s=(*tuning.starts_s, max(0.0, seconds - load_s) / workers)), None


def workers_forbidden(tuning: Tuning, reason: str) -> Step:
    """Load without workers from now on, for a reason that is a sentence."""
    return tuning.without_workers(reason), Action(Window(), due=None)


def epoch_ended(tuning: Tuning, window: Window, look: Look) -> tuple[Tuning, None]:
    """Record the last measurements of an epoch."""
    clock, settings = look.clock, tuning.settings
    was_settled = tuning.is_settled
    if not was_settled:
        tuning, window = _accounted(tuning, window, clock)
    if tuning.batches != look.position:
        tuning = replace(tuning, batches=look.position)  # counted, for a sampler without a length
    if was_settled or not clock.batches:
        return tuning, None
    is_first = tuning.single_process is None and not window.workers
    if window.is_enough(clock, settings) or is_first:
        tuning = _measured(tuning, window, clock)
    elif window.first <= max(1, window.workers):
        # The epoch was too short for a window: all of its time counts, including the workers' start.
        tuning = tuning.after_trial(window.trial(clock, settings, since=0))
    return tuning.settled_if_done(), None


def _accounted(tuning: Tuning, window: Window, clock: StepClock) -> tuple[Tuning, Window]:
    """Record the batches since the last look; workers are compared with loading without them."""
    batches = clock.batches - window.accounted
    waits, steps = latest(clock, batches, tuning.settings.unusual)
    behind_s = tuning.behind_s
    if tuning.single_process is not None and window.workers:
        seconds = sum(waits) + sum(steps) + (0.0 if window.accounted else clock.first_wait_s)
        behind_s = max(0.0, behind_s + seconds - batches * tuning.single_process_s)
    tuning = replace(tuning, seen_batches=tuning.seen_batches + batches, behind_s=behind_s)
    return tuning, replace(window, accounted=clock.batches).at(clock)


def _measured(tuning: Tuning, window: Window, clock: StepClock) -> Tuning:
    """Record what a window shows: a trial and, once, the cost of a batch without workers."""
    if tuning.single_process is None:
        tuning = replace(tuning, single_process=window.single_process_cost(clock, tuning.settings))
    return tuning.after_trial(window.trial(clock, tuning.settings))


def _continued(tuning: Tuning, window: Window, look: Look) -> Step:
    """Continue with the number of workers to try next, or with the best if none is left."""
    tuning = tuning.settled_if_done()
    workers = tuning.following
    if workers > look.started:
        left = None if tuning.batches is None else tuning.batches - look.position
        if look.is_drawn or not tuning.fits_into_epoch(workers, left):
            # The next epoch will begin with them.
            workers = tuning.best if tuning.best <= look.started else window.workers
    return _loading_by(tuning, window, workers, look)


def _loading_by(tuning: Tuning, window: Window, workers: int, look: Look) -> Step:
    """Load the next batches with a number of workers, in a new window, once any may load."""
    batches = look.clock.batches
    if workers and not tuning.is_dataset_checked:
        return tuning, Action(window, batches + 1, checks_dataset=True)
    first, since = max(1, batches), window.since
    if workers != window.workers:
        # Batches in flight were requested before; then each worker makes its first batch.
        first, since = batches + look.requested + max(1, workers), batches
    window = Window(workers, first, since, accounted=batches).at(look.clock)
    return tuning, Action(window, None if tuning.is_settled else batches + 1)
