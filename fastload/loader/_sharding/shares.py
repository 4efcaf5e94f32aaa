"""Positions of an epoch that belong to each rank.

Positions are distributed in rounds. In a round, each rank gets as many consecutive positions as its share:
with the shares (1, 2, 2), rank 0 gets positions 0, 5, 10, …, rank 1 gets 1, 2, 6, 7, … After the same number
of rounds, the positions of all ranks together are the beginning of the epoch, without a gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastload.errors import OptionError

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

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of this rank's samples, given their numbers on this rank."""
        rounds, places = np.divmod(numbers, self.size)
        found: NDArray[np.int64] = rounds * self.round_size + self.before + places
        return found

    def count(self, positions: int) -> int:
        """Return how many of the first `positions` belong to this rank."""
        rounds, rest = divmod(positions, self.round_size)
        return rounds * self.size + min(max(rest - self.before, 0), self.size)


def share_of(rank: int, weights: Sequence[float]) -> Share:
    """Return a rank's share: shares are integers in proportion to the ranks' weights.

    Raises:
        OptionError: A weight is not a positive number.
    """
    shares = _integer_shares(weights)
    return Share(sum(shares[:rank]), shares[rank], sum(shares))


def _integer_shares(weights: Sequence[float]) -> list[int]:
    if not all(0 < weight < math.inf for weight in weights):
        raise OptionError(f"weights must be positive numbers, one for each rank, got {weights!r}")
    fractions = {weight: Fraction(weight).limit_denominator(_FINEST) for weight in weights}
    if 0 in fractions.values():
        raise OptionError(f"weights must be at least {1 / _FINEST}, got {weights!r}")
    denominator = math.lcm(*(each.denominator for each in fractions.values()))
    shares = [int(fractions[weight] * denominator) for weight in weights]
    divisor = math.gcd(*shares)
    return [share // divisor for share in shares]
