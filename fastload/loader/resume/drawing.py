"""Random states that an epoch's order is drawn from: of generators, samplers and the process."""

from __future__ import annotations

import contextlib
import copy
import random
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fastload.contracts import is_stateful
from fastload.loader.arguments import LoaderView
from fastload.loader.sharded_sampler import ShardedSampler
from fastload.loader.sharding import torch_ranks

State = dict[str, Any]

# Purposes of the numbers that are derived from a seed.
ORDER, WORKERS, TRANSFORMS = range(3)


def derived_seed(seed: int, epoch: int, purpose: int, stream: int = 0) -> int:
    """Return a 63-bit number that depends on the seed, the epoch, the purpose and the stream."""
    sequence = np.random.SeedSequence([seed, epoch, purpose], spawn_key=(stream,) if stream else ())
    words = sequence.generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def start_state(view: LoaderView) -> State:
    """Return the random states from which the order of an epoch would be drawn now."""
    return {"global": global_state(), "samplers": _sampler_states(view)}


def global_state() -> State:
    """Return the global random states of torch, Python and NumPy, in types that `torch.load` trusts."""
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": _without_arrays(np.random.get_state(legacy=False)),
    }


def global_checksum() -> int:
    """Return a checksum of the global random states."""
    state = global_state()
    return zlib.crc32(repr((state["torch"].numpy().tobytes(), state["python"], state["numpy"])).encode())


@contextlib.contextmanager
def drawn_from(state: State, became: State) -> Iterator[None]:
    """Swap the global states for `state` within the block; `became` receives the states at its end."""
    users = global_state()
    _set_global_state(state)
    try:
        yield
    finally:
        became.update(global_state())
        _set_global_state(users)


def set_sampler_states(view: LoaderView, state: State) -> None:
    """Put generators and samplers into the states that `start_state` returned; their epochs stay."""
    for name, owner in _owners(view).items():
        saved, epoch = state["samplers"].get(name, {}), getattr(owner, "epoch", None)
        if "generator" in saved and isinstance(getattr(owner, "generator", None), torch.Generator):
            owner.generator.set_state(saved["generator"])
        if "state" in saved:
            owner.load_state_dict(copy.deepcopy(saved["state"]))
            if "epoch" in saved:
                owner.set_epoch(epoch)


def set_sampler_epochs(view: LoaderView, state: State) -> None:
    """Call `set_epoch` of samplers that have it with the epoch that `start_state` returned."""
    for name, owner in _owners(view).items():
        epoch = state["samplers"].get(name, {}).get("epoch")
        if epoch is not None:
            owner.set_epoch(epoch)


def changed_epoch(view: LoaderView, state: State) -> tuple[int, int] | None:
    """Return a sampler's epoch in the result of `start_state`, and the one it has now, if they differ."""
    for name, owner in _owners(view).items():
        saved = state["samplers"].get(name, {}).get("epoch")
        if saved is not None and owner.epoch != saved:
            return saved, owner.epoch
    return None


def sharded_name(start: State) -> str:
    """Return the name of the ShardedSampler, of which there is one, in the result of `start_state`."""
    return "sampler" if "sampler" in start["samplers"] else "inner_sampler"


def rank_of(view: LoaderView) -> int:
    """Return the sampler's rank, which is the same for all ranks of a replica; else torch.distributed's."""
    _, rank = ranks_of(view) or torch_ranks()
    return rank


def ranks_of(view: LoaderView) -> tuple[int, int] | None:
    """Return the number of ranks, and this one's, of a sampler that shares out samples; None for others."""
    for owner in _owners(view).values():
        if isinstance(owner, ShardedSampler):
            return owner.ranks
        if hasattr(owner, "num_replicas") and hasattr(owner, "rank"):
            return owner.num_replicas, owner.rank
    return None


def generators_of(view: LoaderView) -> list[torch.Generator]:
    """Return the generators that a loader and its samplers were given, each once."""
    generators = [getattr(owner, "generator", None) for owner in _owners(view).values()]
    return list({id(each): each for each in generators if isinstance(each, torch.Generator)}.values())


def _set_global_state(state: State) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])


def _without_arrays(state: object) -> object:
    if isinstance(state, dict):
        return {name: _without_arrays(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, (np.ndarray, np.generic)) else state


def are_equal(one: object, other: object) -> bool:
    """Return whether two states are equal; they may contain anything."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_equal(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(are_equal, one, other))
    if isinstance(one, (torch.Tensor, np.ndarray)) and type(one) is type(other):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    return one is other or repr(one) == repr(other)


def _owners(view: LoaderView) -> dict[str, Any]:
    """Return, by name, the objects that an epoch's order comes from, each once."""
    owners = {"loader": view, "batch_sampler": view.batch_sampler, "sampler": view.sampler}
    inner = getattr(view.index_sampler, "sampler", None)
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
            if is_stateful(owner):
                # A copy, because some samplers return a dict that they keep changing.
                state["state"] = copy.deepcopy(owner.state_dict())
            if hasattr(owner, "set_epoch") and isinstance(getattr(owner, "epoch", None), int):
                state["epoch"] = owner.epoch
        if state:
            states[name] = state
    return states
