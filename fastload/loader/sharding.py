"""Order of an epoch over several ranks: the sample at each position, and each rank's positions.

All of it is arithmetic on (seed, epoch, position): no rank has to know what another one does, and a position
is all that a resumed epoch needs. Positions are distributed in rounds. In a round, each rank gets as many
consecutive positions as its share: with the shares (1, 2, 2), rank 0 gets positions 0, 5, 10, …, rank 1 gets
1, 2, 6, 7, … After the same number of rounds, the positions of all ranks together are the beginning of the
epoch, without a gap.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
import torch.distributed
from numpy.typing import NDArray

from fastload.contracts import LiesInShards
from fastload.errors import OptionError
from fastload.transforms.draws import mixed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# From 10 rounds on, all permutations of 2 to 6 values are equally frequent over keys; with 8, they miss that
# by up to 4 deviations of chi-squared, with 6 by 14 (measured over 4,000 keys).
_ROUNDS = 12

EpochOrder = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Returns the samples' indices at positions of an epoch."""


class Permutation:
    """A random permutation of the numbers below `count`, as a function of its key.

    A Feistel network permutes the numbers of a power of two; a result that is too large is permuted again
    until it is not ("cycle walking": Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), fewer
    than two times on average.

    Args:
        count: At least 1.
        key: Integers of at least 0, such as (seed, epoch).
    """

    __slots__ = ("_count", "_high_mask", "_keys", "_low_bits", "_low_mask")

    def __init__(self, count: int, key: Sequence[int]) -> None:
        bits = max(2, (count - 1).bit_length())
        self._count = np.uint64(count)
        self._low_bits = np.uint64(bits // 2)
        self._low_mask = np.uint64((1 << bits // 2) - 1)
        self._high_mask = np.uint64((1 << bits - bits // 2) - 1)
        self._keys = np.random.SeedSequence(tuple(key)).generate_state(_ROUNDS, np.uint64)

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the permuted values of positions below `count`, in the same shape."""
        values = self._permuted(positions.astype(np.uint64))
        while (beyond := values >= self._count).any():
            values[beyond] = self._permuted(values[beyond])
        return values.view(np.int64)

    def _permuted(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        high, low = values >> self._low_bits, values & self._low_mask
        for even, odd in self._keys.reshape(-1, 2):
            high ^= mixed(low + even) & self._high_mask
            low ^= mixed(high + odd) & self._low_mask
        result: NDArray[np.uint64] = high << self._low_bits | low
        return result


class ShuffledWindows:
    """Shards in random order, and samples shuffled within windows of several shards.

    A reader needs only one window's shards at a time. Memory is in proportion to the number of shards.

    Args:
        counts: The samples of each shard, in the order of their indices; each at least 1.
        window: Shards of a window; the last one may have fewer.
        seed, epoch: Determine the order.
    """

    def __init__(self, counts: Sequence[int], window: int, seed: int, epoch: int) -> None:
        self._key = seed, epoch
        shards = Permutation(len(counts), (*self._key, 0))(np.arange(len(counts)))
        sizes = np.array(counts, np.int64)
        # For each shard, in shuffled order: its first position before samples are shuffled; its first sample.
        self._shard_begins = _begins(sizes[shards])
        self._first_samples = _begins(sizes)[shards]
        self._window_begins = np.append(self._shard_begins[::window], sizes.sum())

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples' indices at positions of the epoch."""
        windows = np.searchsorted(self._window_begins, positions, "right") - 1
        places = np.empty_like(positions)
        for window in np.unique(windows).tolist():
            first, end = self._window_begins[window : window + 2].tolist()
            shuffle = Permutation(end - first, (*self._key, 1 + window))
            inside = windows == window
            places[inside] = first + shuffle(positions[inside] - first)
        shards = np.searchsorted(self._shard_begins, places, "right") - 1
        found: NDArray[np.int64] = self._first_samples[shards] + places - self._shard_begins[shards]
        return found


def _begins(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(sizes) - sizes


# The largest denominator of a weight: 0.333 counts as 333/1000, not as 1/3.
_FINEST = 1000


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of each round.

    Attributes:
        before: The positions of a round that belong to lower ranks.
        size: The positions of a round that belong to this rank.
        round_size: All positions of a round.
    """

    before: int
    size: int
    round_size: int

    @classmethod
    def of(cls, rank: int, weights: Sequence[float]) -> Share:
        """Return a rank's share; OptionError if a weight is not a positive number."""
        shares = _integer_shares(weights)
        return cls(sum(shares[:rank]), shares[rank], sum(shares))

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of this rank's samples, given their numbers on this rank."""
        rounds, places = np.divmod(numbers, self.size)
        found: NDArray[np.int64] = rounds * self.round_size + self.before + places
        return found

    def count(self, positions: int) -> int:
        """Return how many of the first `positions` belong to this rank."""
        rounds, rest = divmod(positions, self.round_size)
        return rounds * self.size + min(max(rest - self.before, 0), self.size)


def _integer_shares(weights: Sequence[float]) -> list[int]:
    """Return integers in proportion to the ranks' weights."""
    if not all(0 < weight < math.inf for weight in weights):
        raise OptionError(f"weights must be positive numbers, one for each rank, got {weights!r}")
    fractions = {weight: Fraction(weight).limit_denominator(_FINEST) for weight in weights}
    if 0 in fractions.values():
        raise OptionError(f"weights must be at least {1 / _FINEST}, got {weights!r}")
    denominator = math.lcm(*(each.denominator for each in fractions.values()))
    shares = [int(fractions[weight] * denominator) for weight in weights]
    divisor = math.gcd(*shares)
    return [share // divisor for share in shares]


def chosen_ranks(num_replicas: int | None, rank: int | None, mesh: DeviceMesh | None) -> tuple[int, int]:
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


def sizes_of_shards(dataset: object) -> Sequence[int]:
    """Return the number of samples in each of a dataset's shards; raise OptionError if it has none."""
    kind = dataset.__class__.__name__
    if not isinstance(dataset, LiesInShards):
        raise OptionError(
            f"window needs a dataset in shards, such as PackedDataset, got {kind}: leave window unset"
        )
    sizes = dataset.shard_sizes
    try:
        found = np.asarray(sizes)
    except (TypeError, ValueError):  # ragged
        found = np.empty(())
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise OptionError(
            f"shard_sizes of {kind} must be the number of samples in each shard, got {sizes!r}: if the "
            "attribute has another purpose, leave window unset"
        )
    return sizes


def checked_index(name: str, value: object) -> int:
    """Return an integer of at least 0, of any type; raise OptionError for anything else."""
    if (
        isinstance(value, bool)
        or not isinstance(value, SupportsIndex)
        or (found := operator.index(value)) < 0
    ):
        raise OptionError(f"{name} must be an integer of at least 0, got {value!r}")
    return found
