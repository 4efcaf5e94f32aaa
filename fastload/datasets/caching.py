"""The cache of a dataset: asked for when it is made, or later by a loader that has measured more."""

from __future__ import annotations

import contextlib
import random
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fastload.datasets.cache.attaching import Attached, CacheReport, Extent, attach, in_use
from fastload.datasets.cache.choose import CacheChoice, Form, choose_cache
from fastload.datasets.cache.files import KeptFiles
from fastload.datasets.cache.limits import Limits
from fastload.datasets.cache.opening import Opening, can_share_memory
from fastload.datasets.cache.options import Cache, cache_of
from fastload.datasets.cache.pages import Pages
from fastload.datasets.cache.readings import Measured, gather
from fastload.datasets.cache.records import KeptRecords
from fastload.errors import DamageError, DecodeError, OptionError, SourceError
from fastload.system.buffers import recycled_tensor
from fastload.system.cpus import usable_cpus
from fastload.transforms.draws import epoch_seed

_NOT_ASKED_FOR = CacheReport(None, None, 0.0, 0.0, 0, "no cache: none was asked for", "", 0, 0)

# Samples prepared to learn how fast that is: some 50 ms of photos.
_PROBED = 32


class CachedDataset(torch.utils.data.Dataset[tuple[Any, Any]]):
    """What a dataset does about its cache."""

    reducing_gap: float | None
    _attached: Attached | None = None

    @property
    def cached(self) -> CacheReport:
        """What the cache is and does by now: its kind, the share that it holds, why it was chosen."""
        return _NOT_ASKED_FOR if self._attached is None else self._attached.report()

    def use_cache(
        self,
        cache: str | Cache | CacheChoice | None,
        measured: Measured | None = None,
        limits: Limits | None = None,
    ) -> CacheReport:
        """Decides where the dataset's bytes are to live, in place of what was decided before.

        Args:
            cache: As for the dataset itself; or what `choose_cache` chose.
            measured: What is known of the disk and the model, for `auto`; the rest is measured here.
            limits: What must stay free of the memory.

        Returns:
            What was decided, and why.

        Raises:
            OptionError: It cannot be had here.
        """
        self.close_cache()
        if cache is None or (isinstance(cache, CacheChoice) and cache.kind is None):
            if cache is not None:
                self._attached = Attached(cache, None)
            return self.cached
        asked, limits, known = cache_of(cache), limits or Limits(), measured or Measured()
        if asked.form == "decoded" and self.reducing_gap is not None:
            raise OptionError(
                "a cache of decoded images cannot go with reducing_gap, which decodes them anew for every "
                'size: leave out one of them, or use form="encoded"'
            )
        is_measured = asked.kind == "auto"
        wants_pixels = asked.form == "decoded" or (is_measured and known.step_samples_per_s is not None)
        wants_pixels = wants_pixels or known.device_room_bytes is not None
        extent = self._extent(wants_pixels)
        choice = cache if isinstance(cache, CacheChoice) else None
        if is_measured:
            choice = in_use(asked, extent)
        if is_measured and choice is None:
            readings = gather(
                extent, asked, known, lambda form: self._prepared_per_s(form, extent, limits), limits
            )
            choice = choose_cache(readings)
        self._attached = attach(asked, extent, self._keep, choice, limits)
        return self.cached

    def fill_cache(self) -> None:
        """Sees to it that what is missing is read in the background, as making a batch does."""
        if self._attached is not None:
            self._attached.fill()

    def close_cache(self) -> None:
        """Leaves the cache, which is removed if nobody else uses it."""
        if self._attached is not None:
            self._attached.stop()
            self._attached = None

    @abstractmethod
    def _extent(self, wants_pixels: bool) -> Extent:
        """How large the dataset is; in pixels too, which may take reading some, where that is wanted."""

    @abstractmethod
    def _keep(self, form: Form, opening: Opening) -> KeptFiles | KeptRecords:
        """The dataset's samples through a store."""

    @abstractmethod
    def fetch_into(self, indices: Sequence[int], out: Any) -> Any:
        """See `ImageDataset`."""

    @property
    def _kept(self) -> KeptFiles | KeptRecords | None:
        """The samples through the store; None without one."""
        kept = None if self._attached is None else self._attached.kept
        if kept is None or isinstance(kept, Pages):
            return None
        # Set after the cache was opened: pixels are then of no use.
        return None if kept.form == "decoded" and self.reducing_gap is not None else kept

    def _prepared_per_s(self, form: Form, extent: Extent, limits: Limits) -> float | None:
        """How many samples all usable CPUs prepare in a second, once their bytes lie in memory."""
        indices = np.unique(np.linspace(0, extent.samples - 1, _PROBED).astype(np.int64)).tolist()
        attached = self._attached
        try:
            if form == "decoded":
                if self.reducing_gap is not None or not can_share_memory():
                    return None
                self._attached = attach(Cache("ram", form=form), extent, self._keep, limits=limits)
                if self._kept is None:
                    return None
            with _random_states_kept():
                self._prepare(indices)
                began = time.perf_counter()
                self._prepare(indices)
                return len(indices) / (time.perf_counter() - began) * usable_cpus()
        except (SourceError, DamageError, DecodeError):
            return None  # training will say which and where
        finally:
            self._attached = attached

    def _prepare(self, indices: list[int]) -> None:
        with epoch_seed(0):
            if self.fetch_into(indices, _Memory()) is NotImplemented:
                for index in indices:
                    self[index]


class _Memory:
    finishes_on_device = False

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return recycled_tensor(shape, dtype)


@contextlib.contextmanager
def _random_states_kept() -> Iterator[None]:
    """Leaves every global generator as it was."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
