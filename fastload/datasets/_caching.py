"""The cache of a dataset: asked for when it is made, or later by a loader that has measured more."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from fastload.datasets.batch import HostMemory
from fastload.datasets.cache._attaching import CacheReport, Extent, OpenCache, attach, in_use
from fastload.datasets.cache._choose import Form, choose_cache, no_cache
from fastload.datasets.cache._limits import CacheLimits
from fastload.datasets.cache._records import CachedRecords
from fastload.datasets.cache.files import CachedFiles
from fastload.datasets.cache.opening import Opening, can_cache
from fastload.datasets.cache.options import Cache, cache_of
from fastload.datasets.cache.readings import Measured, gather
from fastload.errors import DamageError, DecodeError, OptionError, SourceError
from fastload.system.cpus import usable_cpus
from fastload.transforms.draws import epoch_seed

_NO_CACHE = OpenCache(no_cache("none was asked for"))

# Samples prepared to measure how fast that is: about 50 ms of photos.
_PROBED = 32


class CachedDataset(torch.utils.data.Dataset[tuple[Any, Any]]):
    """The part of a dataset that opens and uses a cache."""

    reducing_gap: float | None
    _open_cache: OpenCache = _NO_CACHE

    @property
    def cached(self) -> CacheReport:
        """The state of the cache: its kind, the share of samples stored, why it was chosen."""
        return self._open_cache.report()

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
        if (samples := self._open_cache.samples) is not None:
            samples.filler.ensure_running(samples)

    def close_cache(self) -> None:
        """Leave the cache, which is removed if nobody else uses it."""
        self._open_cache = _NO_CACHE

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
    def _cached_samples(self) -> Any:
        """The samples through the store; None without one."""
        samples = self._open_cache.samples
        # With a reducing_gap that was set after the cache was opened, pixels are of no use.
        is_useless = samples is not None and samples.holds_pixels and self.reducing_gap is not None
        return None if is_useless else samples

    def _prepared_per_s(self, form: Form, extent: Extent, limits: CacheLimits) -> float | None:
        """Measure how many samples all usable CPUs prepare in a second, from bytes or pixels in memory."""
        if form == "decoded" and (self.reducing_gap is not None or not can_cache()):
            return None
        indices = np.unique(np.linspace(0, extent.samples - 1, _PROBED).astype(np.int64)).tolist()
        python, numpy = random.getstate(), np.random.get_state()
        try:
            if form == "decoded":
                self._open_cache = attach(Cache("ram", form=form), extent, self._through_store, limits=limits)
                if self._open_cache.samples is None:
                    return None
            with torch.random.fork_rng(devices=()), epoch_seed(0):
                self._prepare(indices)
                began = time.perf_counter()
                self._prepare(indices)
                return len(indices) / (time.perf_counter() - began) * usable_cpus()
        except (SourceError, DamageError, DecodeError):
            return None  # the training will raise it, and name the sample
        finally:
            self.close_cache()
            random.setstate(python)
            np.random.set_state(numpy)

    def _prepare(self, indices: list[int]) -> None:
        if self.fetch_into(indices, HostMemory()) is NotImplemented:
            for index in indices:
                self[index]
