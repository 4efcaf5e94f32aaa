"""Resuming an epoch where it was left: what a loader's state holds, and how the same order is drawn again.

An epoch's order is a function of the random state at its start. So a state holds that, not the order:
torch's, Python's and NumPy's global states and the states of the generators that the loader and its
samplers were given, and how many batches have been handed out. To resume, the order is drawn again from
those states, and what had been handed out is skipped without being loaded; the global states are then
put back, because they belong to the user.
"""

from __future__ import annotations

import contextlib
import copy
import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError

_VERSION = 1

# What a number that is mixed from a seed is for.
ORDER, WORKERS, TRANSFORMS = range(3)

# In place of a `fingerprint()`: the user's random state is not what later epochs are drawn from.
ANOTHER_STATE = -1

State = dict[str, Any]


class Mark(NamedTuple):
    """How far an iterator has come with one batch.

    Attributes:
        done: How many of its tasks, from the first on, have been handed out.
        beyond: Tasks that have been handed out before an earlier one, where order is not kept.
        worker: The worker that made the batch, where that matters, else -1.
        state: The state of that worker's stateful iterable dataset after it.
    """

    done: int
    beyond: tuple[int, ...] = ()
    worker: int = -1
    state: Any = None


@dataclass(slots=True)
class Progress:
    """How far an epoch has come; shared by a loader and the iterator that it last gave out.

    Attributes:
        epoch: The number of epochs begun before this one.
        start: What its order is drawn from.
        first: How many batches had been handed out before the iterator began.
        skipped: The numbers of further batches that had been, where order is not kept.
        done: How far the iterator has come since: see `Mark`.
        beyond: See `Mark`.
        worker: See `Mark`.
        workers: For a stateful iterable dataset, the state of each worker's copy.
        next_worker: The worker that had the first turn.
        is_begun: Whether the order has been drawn.
        is_finished: Whether the epoch's end has been reached.
        draws_seeds: Whether the workers' seeds are drawn before the order.
        users_state: For a loaded one, the `fingerprint()` at the time that it was saved.
        transform_seed: What its transforms draw from, once that is settled.
    """

    epoch: int
    start: State
    first: int = 0
    skipped: tuple[int, ...] = ()
    done: int = 0
    beyond: tuple[int, ...] = ()
    worker: int = -1
    workers: dict[int, Any] = field(default_factory=dict)
    next_worker: int = 0
    is_begun: bool = True
    is_finished: bool = False
    draws_seeds: bool = True
    users_state: int | None = None
    transform_seed: int | None = None

    def note(self, mark: Mark) -> None:
        """Takes note of a batch that has been handed out."""
        self.done, self.beyond, self.worker, _ = mark
        if mark.state is not None:
            self.workers[mark.worker] = mark.state

    def rebase(self, position: int, done: int) -> None:
        """Counts an iterator's tasks from another one on: others have handed out batches in between.

        Args:
            position: How many batches of the epoch have been handed out, all up to there.
            done: How many tasks of the iterator have been.
        """
        self.skipped = tuple(number for number in self.skipped if number >= position)
        self.first, self.done, self.beyond = position - done, done, ()

    def note_draw(self, start: State) -> None:
        """Takes note that the order is drawn now, the workers' seeds having been drawn before."""
        self.start = start
        self.draws_seeds = False

    @property
    def position(self) -> int:
        """How many batches have been handed out, from the epoch's start up to the first that has not."""
        return self._number(self.done)

    @property
    def early(self) -> list[int]:
        """The numbers of batches that have been handed out beyond `position`."""
        position = self.position
        beyond = {self._number(task) for task in self.beyond}
        return sorted(beyond.union(number for number in self.skipped if number > position))

    def _number(self, task: int) -> int:
        """The number in the epoch of an iterator's task: those skipped were never tasks."""
        number = self.first + task
        for skipped in sorted(self.skipped):
            number += skipped <= number
        return number


class SkippingSampler:
    """An index sampler without what has been handed out already.

    Args:
        sampler: The sampler of an epoch's batches.
        progress: What to leave out: the ones before `first`, and the `skipped` ones.
    """

    def __init__(self, sampler: Any, progress: Progress) -> None:
        self._sampler = sampler
        self._first = progress.first
        self._skipped = frozenset(progress.skipped)

    def __iter__(self) -> Iterator[Any]:
        for number, indices in enumerate(self._sampler):
            if number >= self._first and number not in self._skipped:
                yield indices

    def __len__(self) -> int:
        return len(self._sampler)


def start_state(loader: Any) -> State:
    """What the order of the epoch that begins now will be drawn from.

    Args:
        loader: A DataLoader; read are its generator and its samplers.
    """
    return {"global": _global_state(), "samplers": _sampler_states(loader)}


def _global_state() -> State:
    """torch's, Python's and NumPy's global random states."""
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }


def _set_global_state(state: State) -> None:
    """Sets what `_global_state` returned."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])


@contextlib.contextmanager
def drawn_from(state: State, became: State) -> Iterator[None]:
    """Swaps the global states for others meanwhile.

    Args:
        state: The others.
        became: Filled, afterwards, with what these have become.
    """
    users = _global_state()
    _set_global_state(state)
    try:
        yield
    finally:
        became.update(_global_state())
        _set_global_state(users)


def set_sampler_states(loader: Any, state: State) -> None:
    """Puts a loader's generators and samplers into the state that `start_state` found them in."""
    for name, owner in _owners(loader).items():
        saved = state["samplers"].get(name, {})
        if "generator" in saved and isinstance(getattr(owner, "generator", None), torch.Generator):
            owner.generator.set_state(saved["generator"])
        if "state" in saved:
            owner.load_state_dict(copy.deepcopy(saved["state"]))


def set_sampler_epochs(loader: Any, state: State) -> None:
    """Tells samplers with `set_epoch` which epoch `start_state` found them in."""
    for name, owner in _owners(loader).items():
        epoch = state["samplers"].get(name, {}).get("epoch")
        if epoch is not None:
            owner.set_epoch(epoch)


def to_state_dict(progress: Progress, settings: State) -> State:
    """A loader's state: tensors, numbers, strings and dicts, so `torch.load` takes it with weights_only.

    Args:
        progress: How far it has come.
        settings: What a loader must have in common with it to go on from there, and `num_workers`.
    """
    state = {
        "version": _VERSION,
        "settings": settings,
        "epoch": progress.epoch,
        "position": progress.position,
        "early": progress.early,
        "is_begun": progress.is_begun,
        "draws_seeds": progress.draws_seeds,
        "global": _packed_global(progress.start["global"]),
        "samplers": progress.start["samplers"],
        "users_state": fingerprint() if progress.users_state is None else progress.users_state,
        "transform_seed": progress.transform_seed,
    }
    if progress.workers:
        last, workers = progress.worker, settings["num_workers"] or 1
        state["workers"] = dict(progress.workers)
        state["next_worker"] = progress.next_worker if last < 0 else (last + 1) % workers
    return state


def from_state_dict(state: State, settings: State) -> Progress:
    """The progress that a state tells of.

    Args:
        state: What `to_state_dict` returned.
        settings: Those of the loader that is to go on from there.

    Raises:
        OptionError: It is none of this library's, or a later release's, or was taken of a loader with other
            settings.
    """
    version = state.get("version") if isinstance(state, dict) else None
    try:
        if version != _VERSION:
            raise KeyError("this version")
        _require_same(state["settings"], settings, bool(state.get("workers")))
        return Progress(
            epoch=state["epoch"],
            start={"global": _unpacked_global(state["global"]), "samplers": dict(state["samplers"])},
            first=state["position"],
            skipped=tuple(state["early"]),
            workers=dict(state.get("workers", {})),
            next_worker=state.get("next_worker", 0),
            is_begun=state["is_begun"],
            draws_seeds=state["draws_seeds"],
            users_state=state["users_state"],
            transform_seed=state["transform_seed"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"the state must be what a DataLoader's state_dict() returned (version {_VERSION}), got "
            f"{type(state).__name__} of version {version!r}, which lacks {error}"
        ) from error


def mixed(seed: int, epoch: int, purpose: int) -> int:
    """One number of 63 bits for each seed, epoch and purpose, as NumPy mixes them."""
    words = np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def fingerprint() -> int:
    """A number that tells whether the global random states are what they were when a state was taken."""
    state = _global_state()
    numpy = _with_arrays(state["numpy"], lambda array: array.tobytes())
    return zlib.crc32(repr((state["torch"].numpy().tobytes(), state["python"], numpy)).encode())


def _require_same(saved: State, settings: State, is_by_worker: bool) -> None:
    for name, value in settings.items():
        if (name != "num_workers" or is_by_worker) and saved[name] != value:
            raise OptionError(
                f"the state was taken of a loader with {name}={saved[name]!r}, and this one has "
                f"{name}={value!r}: make it with the same settings"
            )


def _owners(loader: Any) -> dict[str, Any]:
    """The objects from which an epoch's order comes, each once, by name."""
    owners = {"loader": loader, "batch_sampler": loader.batch_sampler, "sampler": loader.sampler}
    inner = getattr(loader.batch_sampler, "sampler", None)
    if inner is not loader.sampler:
        owners["inner_sampler"] = inner
    return {name: owner for name, owner in owners.items() if owner is not None}


def _sampler_states(loader: Any) -> State:
    states: State = {}
    seen: set[int] = set()
    for name, owner in _owners(loader).items():
        state: State = {}
        generator = getattr(owner, "generator", None)
        # A loader and its sampler usually share one.
        if isinstance(generator, torch.Generator) and id(generator) not in seen:
            seen.add(id(generator))
            state["generator"] = generator.get_state()
        if owner is not loader:
            if hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict"):
                # A copy, because some give out the dict that they go on changing.
                state["state"] = copy.deepcopy(owner.state_dict())
            if hasattr(owner, "set_epoch") and isinstance(getattr(owner, "epoch", None), int):
                state["epoch"] = owner.epoch
        if state:
            states[name] = state
    return states


def _packed_global(state: State) -> State:
    version, numbers, gauss = state["python"]
    # 625 numbers of 32 bits: as a tensor 2.5 KB, as Python's integers the double.
    python = {"version": version, "numbers": np.array(numbers, np.uint32), "gauss": gauss}
    return {"torch": state["torch"], "python": _packed(python), "numpy": _packed(state["numpy"])}


def _unpacked_global(state: State) -> State:
    python = _unpacked(state["python"])
    return {
        "torch": state["torch"],
        "python": (python["version"], tuple(python["numbers"].tolist()), python["gauss"]),
        "numpy": _unpacked(state["numpy"]),
    }


def _packed(state: Any) -> Any:
    def as_tensor(array: NDArray[Any]) -> State:
        return {"dtype": array.dtype.str, "bytes": torch.frombuffer(bytearray(array), dtype=torch.uint8)}

    return _with_arrays(state, as_tensor)


def _unpacked(state: Any) -> Any:
    if isinstance(state, dict) and state.keys() == {"dtype", "bytes"}:
        return np.frombuffer(state["bytes"].numpy().tobytes(), state["dtype"])
    if isinstance(state, dict):
        return {name: _unpacked(value) for name, value in state.items()}
    return state


def _with_arrays(state: Any, make: Callable[[NDArray[Any]], Any]) -> Any:
    """A tree of dicts with its arrays replaced by what `make` makes of them."""
    if isinstance(state, dict):
        return {name: _with_arrays(value, make) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return make(state)
    return state.item() if isinstance(state, np.generic) else state
