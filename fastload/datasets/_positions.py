"""Indices of samples as positions counted from the first one."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fastload.errors import RecordIndexError


def positions_below(length: int, indices: Sequence[SupportsIndex], dataset: object) -> NDArray[np.int64]:
    """Return indices below a length, negative ones counted from the end, as positions.

    RecordIndexError, naming the dataset, is raised for the first index out of range.
    """
    positions = np.asarray(indices)
    # NumPy would accept floats and booleans as indices too.
    if positions.dtype.kind not in "iu" or positions.ndim != 1:
        positions = np.array([operator.index(index) for index in indices])
    if positions.size and not (positions.min() >= 0 and positions.max() < length):
        is_outside = (positions < -length) | (positions >= length)
        if is_outside.any():
            first = positions[is_outside][0]
            raise RecordIndexError(f"{dataset}: index {first} is out of range for {length:,} samples")
        positions = np.where(positions < 0, positions + length, positions)
    return positions.astype(np.int64, copy=False)
