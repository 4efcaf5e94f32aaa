"""Iterable datasets with state, following torchdata's protocol.

The dataset, or its iterator, has `state_dict()` and `load_state_dict(state)`. The state of each worker's copy
is sent with each batch, so that prefetched batches do not count.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info

from fastload.loader._torch import pin_memory


class BatchWithState(NamedTuple):
    """A batch, the number of its worker, and the state of the worker's dataset after it."""

    batch: Any
    worker: int
    state: Any

    def pin_memory(self, device: str | None = None) -> BatchWithState:
        """Return it with the batch in pinned memory."""
        return self._replace(batch=pin_memory(self.batch, device))


class StatefulIterable(IterableDataset[Any]):
    """Wrapper of an iterable dataset that starts from a state and returns its current state.

    `states` are the states to start from, by worker number; other workers start from the beginning.
    """

    def __init__(self, dataset: Any, states: Mapping[int, Any]) -> None:
        self.dataset = dataset
        self._states = dict(states)
        self._iterator: _TrackedIterator | None = None

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
        self._iterator = _TrackedIterator(iterator)
        return self._iterator

    def state(self) -> dict[str, Any]:
        """Return the states of the dataset and of its iterator; empty if neither has any."""
        tracked = self._iterator
        if tracked is None:
            return {}
        if tracked.has_ended:
            return {"has_ended": True}
        parts = {"dataset": self.dataset}
        if tracked.iterator is not self.dataset:
            parts["iterator"] = tracked.iterator
        # Copies, because some datasets return a dict that they keep modifying.
        return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items() if _is_stateful(part)}


class _TrackedIterator:
    """Iterator that remembers whether it is exhausted."""

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
