"""Progress of an epoch, shared by a loader and its iterator: the content of a loader's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fastload.errors import OptionError
from fastload.loader.arguments import LoaderView
from fastload.loader.resume.drawing import TRANSFORMS, State, derived_seed, sharded_name, start_state

_VERSION = 4

ANOTHER_STATE = -1
"""Placeholder for a `global_checksum()` if later epochs are not drawn from the user's random state."""


class Position(NamedTuple):
    """An iterator's position after a batch.

    Attributes:
        done: The number of its first tasks, without a gap, whose batches have been handed out.
        beyond: Later tasks whose batches have been handed out, if order is not kept.
        worker: The worker that made the batch, for a stateful dataset; else -1.
        state: The state of that worker's dataset after the batch.
    """

    done: int
    beyond: tuple[int, ...] = ()
    worker: int = -1
    state: State | None = None


@dataclass(slots=True)
class DatasetProgress:
    """The states of a stateful dataset and its copies in workers; the iterator notes them.

    Attributes:
        worker: The worker that made the latest batch; -1: none, or unknown.
        workers: The state of each worker's copy.
        ends: The same at the end of the epoch, if the workers stay.
        before_epoch: The state of this process's iterable dataset before the epoch; None if it has none.
        state: Returns the state of an iterable dataset that is read in this process.
        is_restored: True if the dataset has got its state at the end of an epoch.
        next_worker: The worker that has the first turn.
    """

    worker: int = -1
    workers: dict[int, State] = field(default_factory=dict)
    ends: dict[int, State] = field(default_factory=dict)
    before_epoch: object = None
    state: Callable[[], State | None] | None = None
    is_restored: bool = False
    next_worker: int = 0

    def note(self, position: Position) -> None:
        """Record the state of a worker's copy after a batch."""
        self.worker = position.worker
        if position.state:
            self.workers[position.worker] = position.state

    def note_end(self) -> None:
        """Record the states of copies that stay, at the end of an epoch."""
        self.ends = dict(self.workers)

    def stored(self, num_workers: int, has_moved: bool) -> State:
        """Return their part of a loader's state; `has_moved` if a batch has been handed out."""
        workers = dict(self.workers)
        if self.state is not None and has_moved and (current := self.state()):
            workers = {0: current}
        if not workers:
            return {}
        following = self.next_worker if self.worker < 0 else (self.worker + 1) % max(1, num_workers)
        return {"workers": workers, "next_worker": following}


@dataclass(slots=True)
class EpochSeeds:
    """The random numbers of an epoch: the loader makes them, its iterator notes what it draws.

    Attributes:
        start: The random states that the order is drawn from; empty until that is known.
        is_drawn: True if the order has been drawn; without workers, it is drawn with the first batch.
        draws_base: True if torch's base seed, that of the workers, is drawn before the order.
        base: torch's base seed of the epoch or, for persistent workers, of their first one.
        batches: The seed of the epoch's batches and transforms, once known.
        rank: The rank whose random states they are drawn from; 0 if they follow from the loader's seed.
        stream: A number mixed into the seeds, so that ranks with the same seeds draw different random
            numbers; 0 on the rank `rank`, which uses the seeds as they are.
    """

    start: State
    is_drawn: bool = True
    draws_base: bool = True
    base: int | None = None
    batches: int | None = None
    rank: int = 0
    stream: int = 0

    def begin(self, rank: int, batches: int | None) -> None:
        """Begin the epoch on a rank; `batches` is the seed of its batches, if the loader has one."""
        self.stream, self.batches = self.rank ^ rank, batches

    def begin_draw(self, start: State) -> None:
        """Record that the workers' seeds, then the order are drawn from these states."""
        self.is_drawn = True
        self.start = start

    def note_draw(self, view: LoaderView) -> None:
        """Record that the order is drawn now: after the workers' seeds, unless it continues a loaded one."""
        self.is_drawn = True
        if not self.start:
            self.start, self.draws_base = start_state(view), False

    def draw_later(self) -> None:
        """Record that the order is to be drawn with the first batch."""
        self.is_drawn = False

    def base_or(self, drawn: int) -> int:
        """Return the base seed: the one that was just drawn, if none was known."""
        if self.base is None:
            self.base = drawn
        return self.base


@dataclass(slots=True)
class HandedOut:
    """The batches of an epoch that have been handed out: kept by the iterator.

    Attributes:
        first: The number of batches handed out before its iterator began.
        skipped: Numbers of later batches handed out before the iterator began, if order was not kept.
        done, beyond: The batches that the iterator has handed out: see `Position`.
    """

    first: int = 0
    skipped: tuple[int, ...] = ()
    done: int = 0
    beyond: tuple[int, ...] = ()

    @property
    def position(self) -> int:
        """The number of the first batch in the epoch that has not been handed out."""
        return self._number(self.done)

    def early(self) -> list[int]:
        """Return the numbers of later batches that have been handed out."""
        numbers = {self._number(task) for task in self.beyond}
        return sorted(numbers.union(number for number in self.skipped if number > self.position))

    def count_one(self) -> None:
        """Record that another batch has been handed out, or has failed."""
        self.done += 1

    def note(self, position: Position) -> None:
        """Record the position after a batch that has been handed out."""
        self.done, self.beyond = position.done, position.beyond

    def rebase(self, position: int, done: int) -> None:
        """Continue with an iterator whose first `done` tasks end at `position` in the epoch.

        Other iterators have handed out batches in between.
        """
        self.skipped = tuple(number for number in self.skipped if number >= position)
        self.first, self.done, self.beyond = position - done, done, ()

    def _number(self, task: int) -> int:
        """Return the number in the epoch of an iterator's task: skipped batches have no task."""
        number = self.first + task
        for skipped in sorted(self.skipped):
            number += skipped <= number
        return number


@dataclass(slots=True)
class Progress:
    """Progress of an epoch.

    Attributes:
        epoch: The number of epochs begun before this one.
        seeds: The random numbers of the epoch.
        handed: The batches that have been handed out.
        dataset: The states of a stateful dataset and its copies.
        is_finished: True if the epoch has reached its end.
        take_back_draws: Takes back draws ahead of the batches handed out, if the epoch is left early; None if
            there are none.
    """

    epoch: int
    seeds: EpochSeeds
    handed: HandedOut = field(default_factory=HandedOut)
    dataset: DatasetProgress = field(default_factory=DatasetProgress)
    is_finished: bool = False
    take_back_draws: Callable[[], None] | None = None

    def note(self, position: Position) -> None:
        """Record the position after a batch that has been handed out."""
        self.handed.note(position)
        self.dataset.note(position)

    def finish(self) -> None:
        """Record that the epoch has reached its end."""
        self.is_finished = True

    def epoch_seed(self, drawn: int) -> int:
        """Return the seed of the epoch's batches: the loader's, else one derived from torch's base seed."""
        seeds = self.seeds
        if seeds.batches is None:
            seeds.batches = derived_seed(seeds.base_or(drawn), self.epoch, TRANSFORMS)
        return seeds.batches


@dataclass(frozen=True, slots=True)
class SavedEpoch:
    """The content of a loader's state.

    Attributes:
        progress: The epoch's progress.
        is_begun: True if the epoch continues; otherwise it starts.
        users_state: The `global_checksum()` at the time of saving, or ANOTHER_STATE.
        keeps_seed: True if later epochs have the same base seed.
    """

    progress: Progress
    is_begun: bool
    users_state: int
    keeps_seed: bool

    def to_state_dict(self, settings: State) -> State:
        """Return a state for `torch.save`; `settings` must be shared by a loader that resumes from it."""
        progress, seeds = self.progress, self.progress.seeds
        handed = progress.handed
        state = {
            "version": _VERSION,
            "settings": settings,
            "epoch": progress.epoch,
            "start": seeds.start,
            "draws_seeds": seeds.draws_base,
            "base_seed": seeds.base,
            "rank": seeds.rank,
            "position": handed.position,
            "early": handed.early(),
            "is_begun": self.is_begun,
            "users_state": self.users_state,
            "keeps_seed": self.keeps_seed,
        }
        return state | progress.dataset.stored(settings["num_workers"], handed.done > 0)

    @classmethod
    def from_state_dict(cls, state: State, settings: State) -> SavedEpoch:
        """Return the content of a state; raise OptionError if it is not one of a loader with `settings`."""
        version = state.get("version") if isinstance(state, dict) else None
        if isinstance(version, int) and version != _VERSION:
            raise OptionError(
                f"the state must be of version {_VERSION}, got version {version}, of "
                f"{'an older' if version < _VERSION else 'a newer'} fastload: load it with the release that "
                "saved it, or begin a new epoch"
            )
        try:
            state = _with_steps_of(settings, state)
            _require_equal(state["settings"], settings, bool(state.get("workers")))
            seeds = EpochSeeds(
                start={name: dict(state["start"][name]) for name in ("global", "samplers")},
                draws_base=state["draws_seeds"],
                base=state["base_seed"],
                rank=state["rank"],
            )
            handed = HandedOut(first=state["position"], skipped=tuple(state["early"]))
            dataset = DatasetProgress(
                workers=dict(state.get("workers", {})), next_worker=state.get("next_worker", 0)
            )
            progress = Progress(state["epoch"], seeds, handed, dataset)
            return cls(progress, state["is_begun"], state["users_state"], state["keeps_seed"])
        except (KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                "the state must be what a DataLoader's state_dict() returned, got "
                f"{type(state).__name__}, which lacks {error}"
            ) from error


def _with_steps_of(settings: State, state: State) -> State:
    """Return a state for a ShardedSampler's steps of another size, on another number of ranks, for example.

    Its sampler then begins where the epoch was left, so that no batch is skipped.
    """
    saved, step_size = state["settings"].get("step_size"), settings.get("step_size")
    if saved is None or step_size in (None, saved) or not state["is_begun"]:
        return {**state, "settings": {**state["settings"], "step_size": step_size}} if saved else state
    if state["early"]:
        raise OptionError(
            "the state was saved by a loader that had handed out batches out of order: resume on the "
            "same number of ranks, with the same batch size, or set in_order=True before saving"
        )
    samplers, name = state["start"]["samplers"], sharded_name(state["start"])
    sampler = samplers[name]
    position = min(sampler["state"]["position"] + state["position"] * saved, settings["samples"])
    moved = {**sampler, "state": {**sampler["state"], "position": position}}
    return {
        **state,
        "settings": {**state["settings"], "step_size": step_size},
        "start": {**state["start"], "samplers": {**samplers, name: moved}},
        "position": 0,
    }


def _require_equal(saved: State, settings: State, depends_on_workers: bool) -> None:
    for name, value in settings.items():
        if saved[name] == value or (name == "num_workers" and not depends_on_workers):
            continue
        if name == "samples":
            raise OptionError(
                f"the state was saved with a dataset of {saved[name]} samples, and this one has {value}: an "
                "epoch can be resumed only with the same samples; load the state with that dataset"
            )
        next_step = "create it with the same settings"
        if name == "num_replicas":
            next_step = "resume on the same number of ranks; batches of a ShardedSampler resume on any number"
        raise OptionError(
            f"the state was saved by a loader with {name}={saved[name]!r}, and this one has "
            f"{name}={value!r}: {next_step}"
        )
