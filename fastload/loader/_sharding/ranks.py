"""Number of ranks that get different samples, and the rank of this process among them."""

from __future__ import annotations

import operator
import os
from typing import Any, SupportsIndex

import torch.distributed

from fastload.errors import OptionError


def chosen_ranks(num_replicas: int | None, rank: int | None, mesh: Any) -> tuple[int, int]:
    """Return the number of ranks, and this process's, by a ShardedSampler's parameters."""
    if mesh is not None:
        if num_replicas is not None or rank is not None:
            raise OptionError("mesh cannot be combined with num_replicas and rank: give one or the other")
        if (dimensions := getattr(mesh, "ndim", mesh)) != 1 or not hasattr(mesh, "get_local_rank"):
            raise OptionError(
                f'mesh must be a DeviceMesh of one dimension, such as mesh["dp"], got {dimensions!r}'
            )
        return mesh.size(), mesh.get_local_rank()
    if (num_replicas is None) != (rank is None):
        raise OptionError("num_replicas and rank must be given together")
    if num_replicas is None or rank is None:
        return torch_ranks()
    num_replicas, rank = checked_index("num_replicas", num_replicas), checked_index("rank", rank)
    if rank >= num_replicas:
        raise OptionError(f"rank must be from 0 to num_replicas - 1 = {num_replicas - 1}, got {rank}")
    return num_replicas, rank


def is_initialised() -> bool:
    """Return whether this process is a rank of torch.distributed."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def torch_ranks() -> tuple[int, int]:
    """Return the number of torch.distributed's ranks, and this process's: one rank if it is not used."""
    if is_initialised():
        return torch.distributed.get_world_size(), torch.distributed.get_rank()
    return 1, 0


def require_one_process() -> None:
    """Raise OptionError if a launcher started several processes, and torch.distributed is not initialised."""
    launched = os.environ.get("WORLD_SIZE", "1")
    if launched != "1":
        raise OptionError(
            f"torch.distributed is not initialised, although WORLD_SIZE={launched}: call "
            "torch.distributed.init_process_group() first, or give num_replicas and rank"
        )


def checked_index(name: str, value: object) -> int:
    """Return an integer of at least 0, of any type; raise OptionError for anything else."""
    if (
        isinstance(value, bool)
        or not isinstance(value, SupportsIndex)
        or (found := operator.index(value)) < 0
    ):
        raise OptionError(f"{name} must be an integer of at least 0, got {value!r}")
    return found
