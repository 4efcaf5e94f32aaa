"""Conversion between an epoch's progress and the state that users save."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.loader._resume.drawing import global_state
from fastload.loader._resume.progress import Progress, State

_VERSION = 2

# In place of a `fingerprint()`: later epochs are not drawn from the user's random state.
ANOTHER_STATE = -1


def to_state_dict(progress: Progress, settings: State) -> State:
    """Return a loader's state: tensors, numbers, strings and dicts, for `torch.load(weights_only=True)`.

    `settings` are those that a loader must share to resume from the state, and `num_workers`.
    """
    state = {
        "version": _VERSION,
        "settings": settings,
        "epoch": progress.epoch,
        "position": progress.position,
        "early": progress.early,
        "is_begun": progress.is_begun,
        "draws_seeds": progress.draws_seeds,
        "global": _pack_global(progress.start["global"]),
        "samplers": progress.start["samplers"],
        "users_state": fingerprint() if progress.users_state is None else progress.users_state,
        "base_seed": progress.base_seed,
    }
    if progress.workers:
        last, workers = progress.worker, settings["num_workers"] or 1
        state["workers"] = dict(progress.workers)
        state["next_worker"] = progress.next_worker if last < 0 else (last + 1) % workers
    return state


def from_state_dict(state: State, settings: State) -> Progress:
    """Return the progress in a state, for a loader with these settings.

    A state of another kind or version, or of a loader with other settings, raises OptionError.
    """
    version = state.get("version") if isinstance(state, dict) else None
    try:
        if version != _VERSION:
            raise KeyError("this version")
        _require_equal(state["settings"], settings, bool(state.get("workers")))
        return Progress(
            epoch=state["epoch"],
            start={"global": _unpack_global(state["global"]), "samplers": dict(state["samplers"])},
            first=state["position"],
            skipped=tuple(state["early"]),
            workers=dict(state.get("workers", {})),
            next_worker=state.get("next_worker", 0),
            is_begun=state["is_begun"],
            draws_seeds=state["draws_seeds"],
            users_state=state["users_state"],
            base_seed=state["base_seed"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"the state must be what a DataLoader's state_dict() returned (version {_VERSION}), got "
            f"{type(state).__name__} of version {version!r}, which lacks {error}"
        ) from error


def fingerprint() -> int:
    """Return a checksum of the global random states."""
    state = global_state()
    numpy = _map_arrays(state["numpy"], lambda array: array.tobytes())
    return zlib.crc32(repr((state["torch"].numpy().tobytes(), state["python"], numpy)).encode())


def _require_equal(saved: State, settings: State, depends_on_workers: bool) -> None:
    for name, value in settings.items():
        if saved[name] == value or (name == "num_workers" and not depends_on_workers):
            continue
        if name == "samples":
            raise OptionError(
                f"the state was saved with a dataset of {saved[name]} samples, and this one has {value}: an "
                "epoch can be resumed only with the same samples; load the state with that dataset"
            )
        raise OptionError(
            f"the state was saved by a loader with {name}={saved[name]!r}, and this one has "
            f"{name}={value!r}: create it with the same settings"
        )


def _pack_global(state: State) -> State:
    version, numbers, gauss = state["python"]
    # 625 numbers of 32 bits: 2.5 KB as a tensor, twice that as Python's integers.
    python = {"version": version, "numbers": np.array(numbers, np.uint32), "gauss": gauss}
    return {"torch": state["torch"], "python": _pack(python), "numpy": _pack(state["numpy"])}


def _unpack_global(state: State) -> State:
    python = _unpack(state["python"])
    return {
        "torch": state["torch"],
        "python": (python["version"], tuple(python["numbers"].tolist()), python["gauss"]),
        "numpy": _unpack(state["numpy"]),
    }


def _pack(state: Any) -> Any:
    def as_tensor(array: NDArray[Any]) -> State:
        return {"dtype": array.dtype.str, "bytes": torch.frombuffer(bytearray(array), dtype=torch.uint8)}

    return _map_arrays(state, as_tensor)


def _unpack(state: Any) -> Any:
    if isinstance(state, dict) and state.keys() == {"dtype", "bytes"}:
        return np.frombuffer(state["bytes"].numpy().tobytes(), state["dtype"])
    if isinstance(state, dict):
        return {name: _unpack(value) for name, value in state.items()}
    return state


def _map_arrays(state: Any, convert: Callable[[NDArray[Any]], Any]) -> Any:
    """Return a tree of dicts with each array replaced by `convert(array)`."""
    if isinstance(state, dict):
        return {name: _map_arrays(value, convert) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return convert(state)
    return state.item() if isinstance(state, np.generic) else state
