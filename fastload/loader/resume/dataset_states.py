"""Datasets with state, following torchdata's protocol.

The dataset, or the iterator of an iterable one, has `state_dict()` and `load_state_dict(state)`. The training
process saves the state of its own copy. The state of each worker's copy is sent with each batch, so that
prefetched batches do not count.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, TypeGuard

from torch.utils.data import IterableDataset, get_worker_info

from fastload.contracts import Stateful
from fastload.errors import OptionError
from fastload.loader.resume.drawing import State, are_equal
from fastload.loader.torch_private import EndOfWorker, pin_memory


def is_stateful(part: object) -> TypeGuard[Stateful]:
    """Return True if a part of the loader can be saved and restored."""
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def state_of(part: Stateful) -> object:
    """Return a copy of a state, because some datasets return a dict that they keep modifying."""
    return copy.deepcopy(part.state_dict())


def own_state(dataset: object) -> object:
    """Return the state of the training process's dataset; None if it has none between epochs.

    That of Hugging Face's iterable datasets is the position of an epoch, at its end too.
    """
    is_position = any(kind.__module__.partition(".")[0] == "datasets" for kind in type(dataset).__mro__)
    if not is_position and is_stateful(dataset):
        # Its attributes may be missing before its first `__iter__`, which workers call for their copies.
        with contextlib.suppress(AttributeError):
            return state_of(dataset)
    return None


def load_own_state(dataset: object, state: object) -> None:
    """Load the result of `own_state` in a loader's state, if there is one.

    Raises:
        OptionError: The dataset has no state.
    """
    if not isinstance(state, dict) or "dataset" not in state:
        return
    if not is_stateful(dataset):
        raise OptionError(
            f"the state holds that of a dataset, and {dataset.__class__.__name__} has no state_dict and "
            "load_state_dict: load it with the dataset that it was saved with"
        )
    load(dataset, state["dataset"])


def load(part: Stateful, state: object) -> None:
    """Load a state that may be loaded again."""
    # A copy, because the part may modify it.
    part.load_state_dict(copy.deepcopy(state))


class BatchWithState(NamedTuple):
    """A batch, the number of its worker, and the state of the worker's dataset after it."""

    batch: object
    worker: int
    state: State

    def pin_memory(self, device: str | None = None) -> BatchWithState:
        """Return it with the batch in pinned memory."""
        return self._replace(batch=pin_memory(self.batch, device))


class EndWithState(EndOfWorker):  # type: ignore[misc]
    """The end of a worker's iterable dataset, and the state of the dataset then."""

    state: State

    @classmethod
    def of(cls, worker: int, state: State) -> EndWithState:
        """Return the end of a worker's epoch with its dataset's state."""
        end = cls(worker)
        object.__setattr__(end, "state", state)  # torch's class is frozen
        return end


class StatefulIterable(IterableDataset[object]):
    """Wrapper of an iterable dataset that starts from a state and returns its current state.

    `states` are the states to start from, by worker number; other workers start from the beginning. If
    `is_restored`, the dataset has the state of an epoch's end: the next iteration begins a new epoch.
    """

    def __init__(self, dataset: Iterable[object], states: Mapping[int, State], is_restored: bool) -> None:
        self.dataset: Any = dataset  # which may be Stateful
        self._states = dict(states)
        self._is_restored = is_restored
        self._iterator: _TrackedIterator | None = None

    def __iter__(self) -> Iterator[object]:
        worker = get_worker_info()
        state = self._states.pop(0 if worker is None else worker.id, {})
        if "dataset" in state:
            load(self.dataset, state["dataset"])
        iterator: Any = iter(()) if state.get("has_ended") else iter(self.dataset)
        if "iterator" in state:
            # Again what the dataset's `__iter__` has changed: the dataset may be its own iterator, or count.
            for part, saved in (self.dataset, state.get("dataset")), (iterator, state["iterator"]):
                if saved is not None and not are_equal(part.state_dict(), saved):
                    load(part, saved)
        self._iterator = None
        is_restored = self._is_restored or state.get("has_ended") is False
        if is_stateful(self.dataset) or is_stateful(iterator):
            self._iterator = _TrackedIterator(iterator, self.dataset if is_restored else None)
        self._is_restored = state.get("has_ended", False)
        return iterator if self._iterator is None else self._iterator

    def begin_worker(self, worker: int) -> None:
        """Send the state at the end of the dataset, if it has one, to the training process.

        There, for the next epoch, it has not ended.
        """

        def reduced(end: object) -> tuple[Callable[..., object], tuple[object, ...]]:
            if (state := self.state()) is None:
                return EndOfWorker, (worker,)
            return EndWithState.of, (worker, {**state, "has_ended": False})

        ForkingPickler.register(EndOfWorker, reduced)

    def state(self) -> State | None:
        """Return the states of the dataset and of its iterator; None if neither has any."""
        tracked = self._iterator
        if tracked is None:
            return None
        parts = (
            {"dataset": self.dataset}
            if tracked.has_ended
            else {"dataset": self.dataset, "iterator": tracked.iterator}
        )
        # Both if the dataset is its own iterator, because its `__iter__` may begin anew.
        states: dict[str, object] = {
            name: state_of(part) for name, part in parts.items() if is_stateful(part)
        }
        return {**states, "has_ended": True} if tracked.has_ended else states


class _TrackedIterator:
    """Iterator that remembers whether it is exhausted.

    A dataset that has got the state of its end may take that for the position where its next iteration
    begins: then the one after that is the next epoch, of `restored`.
    """

    def __init__(self, iterator: Iterator[object], restored: Iterable[object] | None) -> None:
        self.iterator = iterator
        self._restored = restored
        self.has_ended = False

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        restored, self._restored = self._restored, None
        try:
            return next(self.iterator)
        except StopIteration:
            if restored is None:
                self.has_ended = True
                raise
        self.iterator = iter(restored)
        return next(self)


class WorkerCopy:
    """State of a worker's copy of a map-style dataset, compared with that of the training process's.

    `states` are the states to start from, by worker number.
    """

    def __init__(self, dataset: Stateful, states: Mapping[int, State]) -> None:
        self._dataset = dataset
        self._states = dict(states)
        self._initial: object = None

    def begin_worker(self, worker: int) -> None:
        """Load the worker's state."""
        self._initial = state_of(self._dataset)
        if (state := self._states.get(worker)) is not None:
            load(self._dataset, state["dataset"])

    def state(self) -> State:
        """Return the dataset's state if it differs from the training process's; else an empty dict."""
        state = state_of(self._dataset)
        return {} if are_equal(state, self._initial) else {"dataset": state}
