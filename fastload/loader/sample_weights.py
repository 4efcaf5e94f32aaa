"""Samples drawn by weights, as a function of (seed, epoch, position), which any rank computes for itself."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, Subset

from fastload.errors import OptionError
from fastload.loader.sharding import EpochOrder
from fastload.transforms.draws import mixed

# Significant bits of a float64.
_BITS = 53


class SampleWeights:
    """A weight for each sample of a dataset, in 8 bytes.

    `asked` are numbers, or "balanced": the classes of the dataset's `targets` are then equally likely.

    Attributes:
        checksum: Two lists of weights that draw alike have the same.

    Raises:
        OptionError: They are not numbers of at least 0, one for each sample; or the dataset has no classes.
    """

    def __init__(self, asked: Sequence[float] | str, dataset: Dataset[object]) -> None:
        if isinstance(asked, str) and asked != "balanced":
            raise OptionError(f'sample_weights must be numbers or "balanced", got {asked!r}')
        samples = len(dataset)  # type: ignore[arg-type]
        weights = _balanced(dataset) if isinstance(asked, str) else _numbers(asked)
        if weights.shape != (samples,) or not np.isfinite(weights).all() or (weights < 0).any():
            raise OptionError(
                f"sample_weights must be {samples:,} finite numbers of at least 0, one for each sample, got "
                f"{weights.size:,} from {weights.min(initial=0)} to {weights.max(initial=0)}"
            )
        if not weights.any() and samples:
            raise OptionError("sample_weights must not all be 0")
        self._ends = np.cumsum(weights)
        self._last = int(np.flatnonzero(weights)[-1]) if samples else 0
        self.checksum = zlib.crc32(weights.tobytes())

    def order(self, seed: int, epoch: int) -> EpochOrder:
        """Return the draws of an epoch, with replacement."""
        keys = np.random.SeedSequence((seed, epoch)).generate_state(2, np.uint64)
        step = self._ends[-1] / 2.0**_BITS

        def drawn(positions: NDArray[np.int64]) -> NDArray[np.int64]:
            values = mixed(mixed(positions.astype(np.uint64) + keys[0]) + keys[1]) >> np.uint64(64 - _BITS)
            # The last product may be rounded up to the sum.
            found: NDArray[np.int64] = np.searchsorted(self._ends, values * step, "right").astype(np.int64)
            return np.minimum(found, self._last, out=found)

        return drawn


def _numbers(weights: object) -> NDArray[np.float64]:
    try:
        return np.asarray(weights, np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, on another device, with gradients
        raise OptionError(
            f"sample_weights must be numbers, got {type(weights).__name__} ({error}): give a list, or an "
            "array or a CPU tensor of one dimension"
        ) from error


def _balanced(dataset: Dataset[object]) -> NDArray[np.float64]:
    _, classes, counts = np.unique(_labels(dataset), return_inverse=True, return_counts=True)
    weights: NDArray[np.float64] = 1 / counts[classes]
    return weights


def _labels(dataset: object) -> NDArray[np.generic]:
    if isinstance(dataset, Subset):
        labels: NDArray[np.generic] = _labels(dataset.dataset)[np.asarray(dataset.indices, np.int64)]
        return labels
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_labels(part) for part in dataset.datasets])
    try:
        found = np.asarray(getattr(dataset, "targets", None))
    except ValueError:  # ragged
        found = np.empty(())
    if found.shape != (len(dataset),):  # type: ignore[arg-type]
        raise OptionError(
            'sample_weights="balanced" needs a dataset whose `targets` are a class for each sample, got '
            f"{type(dataset).__name__} without: give a number for each sample"
        )
    return found
