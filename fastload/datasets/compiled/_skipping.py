"""Compiled datasets that replace a sample that cannot be loaded by another one, as timm's do."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

from fastload.datasets.batch import BatchMemory
from fastload.datasets.compiled._dataset import CompiledDataset
from fastload.system.random_states import RandomStates


class SkippingDataset(CompiledDataset):
    """Compiled dataset whose samples are made by the other dataset if making them fast fails.

    The other dataset draws the same random numbers, and skips a damaged file with its own warning.
    """

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any]:
        state = RandomStates()
        try:
            return super().__getitem__(index)
        except Exception:
            state.restore()
        image, target = self.theirs[operator.index(index)]
        return image, target

    def _made(
        self, indices: Sequence[SupportsIndex], out: BatchMemory, is_collated: bool = False
    ) -> tuple[Any, Any]:
        state = RandomStates()
        try:
            return super()._made(indices, out, is_collated)
        except Exception:
            state.restore()
        samples = [self.theirs[operator.index(index)] for index in indices]
        return [image for image, _ in samples], [target for _, target in samples]
