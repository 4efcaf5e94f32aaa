"""Iterable datasets that can tell and restore where they are, as torchdata's protocol has it.

The dataset, or the iterator that it gives, has `state_dict()` and `load_state_dict(state)`. Each worker's
copy has a state of its own, which travels with each batch, so the training process knows the state after
the batch that was handed out last, however many were prefetched.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory


class Stamped(NamedTuple):
    """A batch, the worker that made it, and its dataset's state after it."""

    batch: Any
    worker: int
    state: Any

    def pin_memory(self, device: str | None = None) -> Stamped:
        """The batch in pinned memory."""
        return self._replace(batch=pin_memory(self.batch, device))  # type: ignore[no-untyped-call]


class StatefulIterable(IterableDataset[Any]):
    """Stands for an iterable dataset: iterates from a state, and tells the state that it is in.

    Args:
        dataset: The dataset.
        states: For each worker's number the state to begin in; those without begin anew.
    """

    def __init__(self, dataset: Any, states: Mapping[int, Any]) -> None:
        self.dataset = dataset
        self._states = dict(states)
        self._iterator: _Watched | None = None

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        state = self._states.pop(0 if worker is None else worker.id, {})
        self._iterator = None
        if state.get("has_ended"):
            return iter(())
        if "dataset" in state:
            self.dataset.load_state_dict(state["dataset"])
        iterator: Iterator[Any] = iter(self.dataset)
        if "iterator" in state:
            iterator.load_state_dict(state["iterator"])  # type: ignore[attr-defined]
        if not (_is_stateful(self.dataset) or _is_stateful(iterator)):
            return iterator
        self._iterator = _Watched(iterator)
        return self._iterator

    def state(self) -> dict[str, Any]:
        """Where the dataset is, and its iterator where that is another object; empty if neither can tell."""
        watched = self._iterator
        if watched is None:
            return {}
        if watched.has_ended:
            return {"has_ended": True}
        parts = {"dataset": self.dataset}
        if watched.iterator is not self.dataset:
            parts["iterator"] = watched.iterator
        # Copies, because some give out the dict that they go on changing.
        return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items() if _is_stateful(part)}


class _Watched:
    """An iterator that remembers whether it has come to its end."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator
        self.has_ended = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.iterator)
        except StopIteration:
            self.has_ended = True
            raise


def _is_stateful(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
