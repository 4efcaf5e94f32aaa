"""Products of parameters: 'make test' runs each value, 'make soak' each combination."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def sampled(*axes: Sequence[Any]) -> list[Any]:
    """Return parameters: a few with every value of each axis; all other combinations are for the soak."""
    lengths = [len(axis) for axis in axes]
    # Axes of the same length take another turn with each round, so that not the same values always meet.
    kept = {
        tuple((turn + place * (turn // length)) % length for place, length in enumerate(lengths))
        for turn in range(max(lengths))
    }
    return [
        pytest.param(
            *(axis[at] for axis, at in zip(axes, case, strict=True)),
            marks=[] if case in kept else [pytest.mark.soak],
        )
        for case in itertools.product(*map(range, lengths))
    ]
