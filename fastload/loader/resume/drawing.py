"""What an epoch's order is drawn from: random states of generators, samplers and the process."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fastload.loader.resume.progress import State

# What a number that is mixed from a seed is for.
ORDER, WORKERS, TRANSFORMS = range(3)


def mixed(seed: int, epoch: int, purpose: int) -> int:
    """One number of 63 bits for each seed, epoch and purpose, as NumPy mixes them."""
    words = np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def start_state(loader: Any) -> State:
    """What the order of the epoch that begins now will be drawn from.

    Args:
        loader: A DataLoader; read are its generator and its samplers.
    """
    return {"global": global_state(), "samplers": _sampler_states(loader)}


def global_state() -> State:
    """torch's, Python's and NumPy's global random states."""
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
    }


def _set_global_state(state: State) -> None:
    """Sets what `global_state` returned."""
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
    users = global_state()
    _set_global_state(state)
    try:
        yield
    finally:
        became.update(global_state())
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


def has_drawn(loader: Any, start: State) -> bool:
    """Whether any of what `start_state` found has changed since."""
    return not _is_same(start_state(loader), start)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, (torch.Tensor, np.ndarray)) and type(one) is type(other):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    # Of a sampler's own state anything may be a part.
    return one is other or repr(one) == repr(other)


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators that a loader and its samplers were given, each once."""
    given = [getattr(owner, "generator", None) for owner in _owners(loader).values()]
    return list({id(each): each for each in given if isinstance(each, torch.Generator)}.values())


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
