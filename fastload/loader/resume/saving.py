"""A loader's state, as users save it: made of an epoch's progress, and read again."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.errors import OptionError
from fastload.loader.resume.drawing import global_state
from fastload.loader.resume.progress import Progress, State

_VERSION = 2

# In place of a `fingerprint()`: the user's random state is not what later epochs are drawn from.
ANOTHER_STATE = -1


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
        "base_seed": progress.base_seed,
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
            base_seed=state["base_seed"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"the state must be what a DataLoader's state_dict() returned (version {_VERSION}), got "
            f"{type(state).__name__} of version {version!r}, which lacks {error}"
        ) from error


def fingerprint() -> int:
    """A number that tells whether the global random states are what they were when a state was taken."""
    state = global_state()
    numpy = _with_arrays(state["numpy"], lambda array: array.tobytes())
    return zlib.crc32(repr((state["torch"].numpy().tobytes(), state["python"], numpy)).encode())


def _require_same(saved: State, settings: State, is_by_worker: bool) -> None:
    for name, value in settings.items():
        if name == "samples" and saved[name] != value:
            raise OptionError(
                f"the state was taken with a dataset of {saved[name]} samples, and this one has {value}: an "
                "epoch goes on with the same samples alone; load the state with the dataset of that time"
            )
        if (name != "num_workers" or is_by_worker) and saved[name] != value:
            raise OptionError(
                f"the state was taken of a loader with {name}={saved[name]!r}, and this one has "
                f"{name}={value!r}: make it with the same settings"
            )


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
