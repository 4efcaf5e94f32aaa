"""Epoch of a dataset that lies on the device: batches are made there, and nothing is loaded."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Subset

from fastload.datasets.cache.resident import Resident
from fastload.loader.iterators import SingleProcessIterator
from fastload.loader.strategy import EpochStart, LoaderView


class ResidentIterator(SingleProcessIterator):
    """Makes an epoch's batches on the device."""

    def __init__(self, view: LoaderView, start: EpochStart, resident: Resident) -> None:
        super().__init__(view, start)
        self._dataset_fetcher = _ResidentFetcher(resident, view.dataset)


class _ResidentFetcher:
    """Stand-in for torch's fetcher that makes batches on the device; `dataset` may be a Subset."""

    def __init__(self, resident: Resident, dataset: Any) -> None:
        self._resident = resident
        self._dataset = dataset

    def fetch(self, seeded: Any) -> Any:
        """Return the batch of some indices, with the seed that transforms draw from."""
        indices, dataset = seeded.indices, self._dataset
        while type(dataset) is Subset:
            indices = [dataset.indices[index] for index in indices]
            dataset = dataset.dataset
        return self._resident.batch(indices, seeded.seed)
