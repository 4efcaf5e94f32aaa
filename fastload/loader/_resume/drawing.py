"""Random states that an epoch's order is drawn from: of generators, samplers and the process."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastload.loader._resume.progress import State

if TYPE_CHECKING:
    from fastload.loader._strategy import LoaderView

# Purposes of a number that is mixed from a seed.
ORDER, WORKERS, TRANSFORMS = range(3)


def mixed(seed: int, epoch: int, purpose: int) -> int:
    """Return a number of 63 bits for each seed, epoch and purpose."""
    words = np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def start_state(view: LoaderView) -> State:
    """Return the random states from which the order of an epoch would be drawn now."""
    return {"global": global_state(), "samplers": _sampler_states(view)}


def global_state() -> State:
    """Return the global random states of torch, Python and NumPy."""
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }


def _set_global_state(state: State) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])


@contextlib.contextmanager
def drawn_from(state: State, became: State) -> Iterator[None]:
    """Swap the global states for `state` within the block; `became` receives what that has become."""
    users = global_state()
    _set_global_state(state)
    try:
        yield
    finally:
        became.update(global_state())
        _set_global_state(users)


def set_sampler_states(view: LoaderView, state: State) -> None:
    """Put generators and samplers into the states that `start_state` returned."""
    for name, owner in _owners(view).items():
        saved = state["samplers"].get(name, {})
        if "generator" in saved and isinstance(getattr(owner, "generator", None), torch.Generator):
            owner.generator.set_state(saved["generator"])
        if "state" in saved:
            owner.load_state_dict(copy.deepcopy(saved["state"]))


def set_sampler_epochs(view: LoaderView, state: State) -> None:
    """Call `set_epoch` of samplers that have it with the epoch that `start_state` returned."""
    for name, owner in _owners(view).items():
        epoch = state["samplers"].get(name, {}).get("epoch")
        if epoch is not None:
            owner.set_epoch(epoch)


def has_drawn(view: LoaderView, start: State) -> bool:
    """Return whether any random state has changed since `start_state` returned `start`."""
    return not _are_equal(start_state(view), start)


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_equal(one[name], other[name]) for name in one)
    if isinstance(one, (torch.Tensor, np.ndarray)) and type(one) is type(other):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    # A sampler's own state may contain anything.
    return one is other or repr(one) == repr(other)


def generators_of(view: LoaderView) -> list[torch.Generator]:
    """Return the generators that a loader and its samplers were given, each once."""
    generators = [getattr(owner, "generator", None) for owner in _owners(view).values()]
    return list({id(each): each for each in generators if isinstance(each, torch.Generator)}.values())


def _owners(view: LoaderView) -> dict[str, Any]:
    """Return, by name, the objects that an epoch's order comes from, each once."""
    owners = {"loader": view, "batch_sampler": view.batch_sampler, "sampler": view.sampler}
    inner = getattr(view.batch_sampler, "sampler", None)
    if inner is not view.sampler:
        owners["inner_sampler"] = inner
    return {name: owner for name, owner in owners.items() if owner is not None}


def _sampler_states(view: LoaderView) -> State:
    states: State = {}
    seen: set[int] = set()
    for name, owner in _owners(view).items():
        state: State = {}
        generator = getattr(owner, "generator", None)
        # A loader and its sampler usually share one.
        if isinstance(generator, torch.Generator) and id(generator) not in seen:
            seen.add(id(generator))
            state["generator"] = generator.get_state()
        if owner is not view:
            if hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict"):
                # A copy, because some return the dict that they go on changing.
                state["state"] = copy.deepcopy(owner.state_dict())
            if hasattr(owner, "set_epoch") and isinstance(getattr(owner, "epoch", None), int):
                state["epoch"] = owner.epoch
        if state:
            states[name] = state
    return states
