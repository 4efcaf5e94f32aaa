"""States of the global random generators of Python, NumPy and, if it is imported, torch (CPU)."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np


class RandomStates:
    """The random states at the time of creation."""

    def __init__(self) -> None:
        self._torch = sys.modules.get("torch")
        self._states = random.getstate(), np.random.get_state()
        self._torch_state = self._torch.get_rng_state() if self._torch else None

    def restore(self) -> None:
        """Set the generators to these states."""
        python, numpy = self._states
        random.setstate(python)
        np.random.set_state(numpy)
        if self._torch:
            self._torch.set_rng_state(self._torch_state)


@contextlib.contextmanager
def preserved_random_states() -> Iterator[None]:
    """Restore the random states after the block."""
    states = RandomStates()
    try:
        yield
    finally:
        states.restore()
