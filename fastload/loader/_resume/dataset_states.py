"""States of datasets with torchdata's `state_dict()` and `load_state_dict(state)`."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from fastload.errors import OptionError


def is_stateful(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def state_of(part: Any) -> Any:
    """Return a copy of a state, because some datasets return a dict that they keep modifying."""
    return copy.deepcopy(part.state_dict())


def own_state(dataset: Any) -> Any:
    """Return the state of the training process's dataset; None if it has none between epochs.

    That of Hugging Face's iterable datasets is the position of an epoch, at its end too.
    """
    is_position = any(kind.__module__.partition(".")[0] == "datasets" for kind in type(dataset).__mro__)
    if not is_position and is_stateful(dataset):
        # Its attributes may be missing before its first `__iter__`, which workers call for their copies.
        with contextlib.suppress(AttributeError):
            return state_of(dataset)
    return None


def load_own_state(dataset: Any, state: Any) -> None:
    """Load the result of `own_state` in a loader's state, if there is one.

    Raises:
        OptionError: The dataset has no state.
    """
    if not isinstance(state, dict) or "dataset" not in state:
        return
    if not is_stateful(dataset):
        raise OptionError(
            f"the state holds that of a dataset, and a {type(dataset).__name__} has no state_dict and "
            "load_state_dict: load it with the dataset that it was saved with"
        )
    load(dataset, state["dataset"])


def load(part: Any, state: Any) -> None:
    """Load a state that may be loaded again."""
    # A copy, because the part may modify it.
    part.load_state_dict(copy.deepcopy(state))
