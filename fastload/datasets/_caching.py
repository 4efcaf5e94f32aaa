"""The cache of a dataset: asked for when it is made, or later by a loader that has measured more."""

from __future__ import annotations

import contextlib
import random
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from fastload.datasets.cache._attaching import CacheReport, Extent, OpenCache, attach, in_use
from fastload.datasets.cache._choose import Form, choose_cache
from fastload.datasets.cache._limits import CacheLimits
from fastload.datasets.cache._records import CachedRecords
from fastload.datasets.cache.files import CachedFiles
from fastload.datasets.cache.opening import Opening, can_cache
from fastload.datasets.cache.options import Cache, cache_of
from fastload.datasets.cache.readings import Measured, gather
from fastload.datasets.cache.resident import HostMemory
from fastload.errors import DamageError, DecodeError, OptionError, SourceError
from fastload.system.cpus import usable_cpus
from fastload.transforms.draws import epoch_seed

_NO_CACHE = CacheReport(None, None, 0.0, "no cache: none was asked for")

# Samples prepared to measure how fast that is: about 50 ms of photos.
_PROBED = 32


class CachedDataset(torch.utils.data.Dataset[tuple[Any, Any]]):
    """The part of a dataset that opens and uses a cache."""

    reducing_gap: float | None
    _open_cache: OpenCache | None = None

    @property
    def cached(self) -> CacheReport:
        """The state of the cache: its kind, the share of samples stored, why it was chosen."""
        return _NO_CACHE if self._open_cache is None else self._open_cache.report()

    def use_cache(
        self,
        cache: str | Cache | None,
        measured: Measured | None = None,
        limits: CacheLimits | None = None,
    ) -> CacheReport:
        """Replace the dataset's cache.

        Args:
            cache: As for the dataset itself.
            measured: Known rates, for `auto`; the rest is measured here.
            limits: The memory that must stay free.

        Returns:
            The state of the new cache, with the reason of the choice.

        Raises:
            OptionError: This cache is not possible here.
        """
        self.close_cache()
        if cache is None:
            return self.cached
        option, limits, measured = cache_of(cache), limits or CacheLimits(), measured or Measured()
        if option.form == "decoded" and self.reducing_gap is not None:
            raise OptionError(
                "a cache of decoded images cannot go with reducing_gap, which decodes them anew for every "
                'size: leave out one of them, or use form="encoded"'
            )
        is_auto = option.kind == "auto"
        wants_pixels = option.form == "decoded" or measured.device_room_bytes is not None
        wants_pixels = wants_pixels or (is_auto and measured.step_samples_per_s is not None)
        extent = self._extent(wants_pixels)
        prepare = partial(self._prepared_per_s, extent=extent, limits=limits)
        choice = None
        if is_auto:
            choice = in_use(option, extent) or choose_cache(gather(extent, option, measured, prepare, limits))
        self._open_cache = attach(option, extent, self._through_store, choice, limits)
        return self.cached

    def fill_cache(self) -> None:
        """Have the missing samples read in the background, as making a batch does."""
        if self._open_cache is not None:
            self._open_cache.fill()

    def close_cache(self) -> None:
        """Leave the cache, which is removed if nobody else uses it."""
        if self._open_cache is not None:
            self._open_cache.stop()
            self._open_cache = None

    @abstractmethod
    def _extent(self, wants_pixels: bool) -> Extent:
        """Return the size of the dataset; that of its pixels, which may need reading, only if wanted."""

    @abstractmethod
    def _through_store(self, form: Form, opening: Opening) -> CachedFiles | CachedRecords:
        """Return the dataset's samples through a store."""

    @abstractmethod
    def fetch_into(self, indices: Sequence[int], out: Any) -> Any:
        """Make a batch; see `ImageDataset`."""

    @property
    def _cached_samples(self) -> CachedFiles | CachedRecords | None:
        """The samples through the store; None without one."""
        samples = None if self._open_cache is None else self._open_cache.samples
        # With a reducing_gap that was set after the cache was opened, pixels are of no use.
        if samples is not None and samples.form == "decoded" and self.reducing_gap is not None:
            return None
        return samples

    def _prepared_per_s(self, form: Form, extent: Extent, limits: CacheLimits) -> float | None:
        """Measure how many samples all usable CPUs prepare in a second, from bytes or pixels in memory."""
        indices = np.unique(np.linspace(0, extent.samples - 1, _PROBED).astype(np.int64)).tolist()
        attached = self._open_cache
        try:
            if form == "decoded":
                if self.reducing_gap is not None or not can_cache():
                    return None
                self._open_cache = attach(Cache("ram", form=form), extent, self._through_store, limits=limits)
                if self._cached_samples is None:
                    return None
            with _random_states_restored():
                self._prepare(indices)
                began = time.perf_counter()
                self._prepare(indices)
                return len(indices) / (time.perf_counter() - began) * usable_cpus()
        except (SourceError, DamageError, DecodeError):
            return None  # the training will raise it, and name the sample
        finally:
            self._open_cache = attached

    def _prepare(self, indices: list[int]) -> None:
        with epoch_seed(0):
            if self.fetch_into(indices, HostMemory()) is NotImplemented:
                for index in indices:
                    self[index]


@contextlib.contextmanager
def _random_states_restored() -> Iterator[None]:
    """Leave every global random generator as it was."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
