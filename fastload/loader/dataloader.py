"""A subclass of torch's DataLoader that receives batches through shared memory."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import Dataset, Sampler

from fastload.datasets.cache.options import Cache
from fastload.errors import OptionError
from fastload.loader import torch_private
from fastload.loader.arguments import (
    UNSET,
    VIEWED,
    DecidedAttribute,
    LoaderView,
    Unset,
    count_batches,
    is_explicit,
)
from fastload.loader.caching import (
    LoaderCache,
    asks_for_device,
    can_be_cached,
    disk_states,
    limits_of,
    own_choice,
    refresh_caches,
    why_not_resident,
)
from fastload.loader.clock import EpochTimes, StepClock
from fastload.loader.compiling import Compiling
from fastload.loader.device import moved_to, resolve_device
from fastload.loader.iterators.base import EpochIterator, EpochStart, SingleProcessIterator
from fastload.loader.iterators.workers import WorkersIterator
from fastload.loader.measurements import DEFAULT_SETTINGS
from fastload.loader.report import EpochReport, report_of
from fastload.loader.resume.dataset_states import load_own_state
from fastload.loader.resume.epochs import Epochs
from fastload.loader.sharded_loaders import NotPrepared, sharded_arguments, warn_if_not_sharded
from fastload.loader.strategies import EpochStrategy, ExplicitStrategy, Plan, choose_strategy
from fastload.system.memory import keep_freed_memory

# torch's parameters that are decided if the user leaves them unset.
_DECIDED = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")

_T_co = TypeVar("_T_co", covariant=True)

if TYPE_CHECKING:
    from torch.utils.data import DataLoader as _Base
else:
    # torch's class takes one type parameter, in newer releases two; this class always takes one.
    _Base = types.GenericAlias(torch.utils.data.DataLoader, (_T_co,))


class DataLoader(_Base[_T_co]):
    """A faster `torch.utils.data.DataLoader` with the same parameters and the same batches.

    Import it in place of torch's. Batches come from the workers through shared memory, without being pickled
    or copied; they can be moved to a GPU in advance; and an interrupted epoch can be resumed. If left
    unset (`UNSET` or None), `num_workers`, `prefetch_factor`, `pin_memory` and `persistent_workers` are
    decided by measuring the epochs' own batches: see `plan`. All other parameters up to `in_order` have
    torch's meaning and default. All differences are on the page "Differences from torch's DataLoader" of the
    documentation.

    Args:
        device: The device for batches, such as `"cuda"`. They are copied there in advance, on a separate
            stream. None, or a device that this machine lacks: batches stay in the CPU's memory.
        cache: Where to cache the bytes of a FolderDataset or a PackedDataset, or the files of a compiled
            dataset: `"ram"`, `"tmpfs"`, `"disk"` (files) or `"device"`; `"auto"` measures and decides; see
            `fastload.Cache`. None: as set on the dataset.
        seed: If set, the order of epoch `n` with `shuffle=True` depends on (seed, n) alone, and the workers'
            seeds on (seed, n, rank) alone. None: they are drawn as in torch. It cannot be combined with
            `generator`, and does not affect a `sampler`.
        compile: True: load from `fastload.compile(dataset)`, the same samples made faster. None: compile only
            steps whose pixels differ by at most two levels of 255. False: torch's samples to the bit.
        sharded: True: load only this rank's part of each epoch, with a `fastload.ShardedSampler` created from
            `shuffle`, `seed`, `drop_last` and `ends`; the ranks are those of torch.distributed. None: load
            all, with a warning if there are several ranks.
        ends: Treatment of the samples at the end of a sharded epoch: see `ShardedSampler`.

    Raises:
        OptionError: `device`, `cache` or `seed` has an invalid value.
        ValueError: Another parameter has an invalid value, as in torch.

    Example:
        >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)  # doctest: +SKIP
        >>> for images, labels in loader: ...  # doctest: +SKIP
    """

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[object] | Iterable[object] | None = None,
        batch_sampler: Sampler[list[object]] | Iterable[list[object]] | None = None,
        num_workers: int = UNSET,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = UNSET,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: BaseContext | str | None = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = UNSET,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: torch.device | str | int | None = None,
        cache: str | Cache | None = None,
        seed: int | None = None,
        compile: bool | None = None,
        sharded: bool | None = None,
        ends: str | None = None,
    ) -> None:
        if sharded:
            given = shuffle, sampler, batch_sampler, seed, drop_last, ends
            shuffle, sampler, batch_sampler = sharded_arguments(dataset, batch_size, *given)
        elif ends is not None:
            raise OptionError(f"ends={ends!r} is for sharded=True: a rank's part of an epoch ends that way")
        self.compile = compile
        self._compiling = Compiling(dataset, compile)
        self.sharded, self.ends = sharded, ends
        self.device = device
        self.cache = cache
        self.seed = seed
        keep_freed_memory()  # forked workers inherit this setting
        self._strategy: EpochStrategy | None = None
        self._epochs = Epochs(seed, generator)
        self._device = resolve_device(device)
        self._clock = StepClock()
        self._thread = get_ident()
        self._prepared: LoaderView | None = None  # for the epoch that begins now
        has_explicit_workers = is_explicit(num_workers)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            # Without workers, torch would reject other worker settings, such as prefetch_factor.
            num_workers if has_explicit_workers else 1,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator if self._epochs.generator is None else self._epochs.generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self.generator = generator
        if self.prefetch_factor != prefetch_factor:
            # torch's default for workers: shown as such, unless their number is not known yet.
            self.prefetch_factor = Unset(2) if has_explicit_workers else None
        self.num_workers = num_workers
        self._cache: LoaderCache | None = None if cache is None else self._make_cache(cache)

    _tuning_settings = DEFAULT_SETTINGS  # tests set others in a subclass
    if not TYPE_CHECKING:
        # Accepts any number of type parameters.
        __class_getitem__ = classmethod(types.GenericAlias)

        num_workers = DecidedAttribute("num_workers")
        prefetch_factor = DecidedAttribute("prefetch_factor")
        pin_memory = DecidedAttribute("pin_memory")
        persistent_workers = DecidedAttribute("persistent_workers")
        _is_accelerate_prepared = NotPrepared()

    def __getstate__(self) -> dict[str, object]:
        # A copy in another process measures for itself, with workers of its own.
        return {**self.__dict__, "_iterator": None, "_strategy": None, "_clock": StepClock()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._thread = get_ident()

    def __iter__(self) -> Any:
        """Begin an epoch, or continue the one whose state has been loaded."""
        warn_if_not_sharded(self)
        self._prepared = self._prepare()  # torch's method reads the attributes that are decided here
        iterator = super().__iter__()
        if not isinstance(self._iterator, WorkersIterator):
            # torch would reuse it for the next epoch, which works only for an iterator with workers.
            self._iterator = None
        device = self._device if torch_private.missing else None
        return iterator if device is None else (moved_to(batch, device) for batch in iterator)

    def _get_iterator(self) -> Any:
        # Called by torch's `__iter__`, and directly by subclasses that keep an iterator.
        with self.beginning_epoch() as (view, start):
            if torch_private.missing:
                return super()._get_iterator()
            iterator: EpochIterator
            if self._cache is not None and self._cache.resident is not None:
                self._strategy = ExplicitStrategy(
                    view, "batches are made on the device, where the dataset is"
                )
                view = dataclasses.replace(view, dataset=self._cache.on_device(view.dataset))
                iterator = SingleProcessIterator(view, start)
            else:
                if "num_workers" in view.explicit:
                    self.check_worker_number_rationality()
                iterator = self._choose_strategy().begin(view, start)
            if start.draws_first:
                iterator.draw_first()
            return iterator

    @contextlib.contextmanager
    def beginning_epoch(self) -> Iterator[tuple[LoaderView, EpochStart]]:
        """Begin an epoch: its iterator is made, or reset, in the block. For the loader's iterators."""
        view, self._prepared = self._prepared or self._prepare(), None
        with self._epochs.beginning(view, self._keeps_seed) as (progress, draws_first):
            self._clock = self._new_clock(view)
            yield view, EpochStart(progress, self._clock, self._epochs.worker_seeds(), draws_first)

    @property
    def _keeps_seed(self) -> bool:
        """True if persistent workers keep their base seed for the next epoch."""
        return isinstance(self._iterator, WorkersIterator) and not self._iterator.draws_each_epoch

    def _new_clock(self, view: LoaderView) -> StepClock:
        return StepClock(view.hands_samples)

    def _prepare(self) -> LoaderView:
        """Prepare the next epoch, and return the arguments as they are now."""
        strategy = self._choose_strategy()
        self._compiling.refresh()
        view = self._view()
        if self._cache is None and asks_for_device(view.dataset):
            self._cache = self._make_cache("device")
        if self._cache is not None:
            self._cache.open(view.dataset)
        refresh_caches(view.dataset)
        strategy.prepare(view, self._cache)
        options = strategy.options
        if self._epochs.is_resuming or not (options.num_workers and options.persistent_workers):
            self._iterator = None  # persistent workers cannot start in the middle of an epoch
        return view

    def _make_cache(self, asked: str | Cache) -> LoaderCache:
        device = torch.device("cpu") if self._device is None and self.device is not None else self._device
        return LoaderCache(asked, device, torch_private.explanation() or why_not_resident(self._view()))

    def _choose_strategy(self) -> EpochStrategy:
        # A new strategy is chosen if the user has set an attribute since the last epoch.
        explicit = self._explicit()
        if self._strategy is None or self._strategy.explicit != explicit:
            if self._strategy is not None and "num_workers" not in self._strategy.explicit:
                self._iterator = None  # its persistent workers were started in the decided number
            self._strategy = choose_strategy(self._view(), self._tuning_settings)
        return self._strategy

    def _explicit(self) -> dict[str, object]:
        """Return the values of `device`, `cache` and the decided parameters that the user has set."""
        values = {name: vars(self)[name] for name in (*_DECIDED, "device", "cache")}
        return {name: value for name, value in values.items() if is_explicit(value)}

    def _view(self, with_batches: bool = False) -> LoaderView:
        """Return the arguments as they are now: frameworks change some of them between epochs."""
        explicit = self._explicit()
        private = ("_dataset_kind", "_IterableDataset_len_called")
        names = [name for name in vars(self) if not name.startswith("_") or name in private]
        return LoaderView(
            dataset=self._compiling.source,
            **{name: getattr(self, name) for name in VIEWED},
            explicit=explicit,
            batches=count_batches(self) if with_batches or "num_workers" not in explicit else None,
            device=self._device,
            thread=self._thread,
            attributes={name: vars(self)[name] for name in names},
        )

    @property
    def plan(self) -> Plan:
        """The plan by which batches are loaded, with the measurement behind each decision.

        `print(loader.plan)` shows it as a table. Before the first epoch, nothing has been measured.
        """
        plan = self._choose_strategy().plan
        cache = own_choice(self._compiling.source) if self._cache is None else self._cache.choice
        limits = limits_of(self._compiling.source)
        compiled = self._compiling.choice(plan.num_workers.value)
        return dataclasses.replace(plan, cache=cache or plan.cache, compiled=compiled, limits=limits)

    @property
    def last_epoch(self) -> EpochTimes | None:
        """Times of the latest epoch (up to now if it is still running); None before its first batch."""
        return self._clock.times()

    def report(self) -> EpochReport:
        """Return where the latest epoch's time went, and the next step.

        `fastload doctor train.py` gives more detail on decoding, transforms, the disk and the training step.

        Raises:
            OptionError: No batch has been handed out yet.
        """
        times = self.last_epoch
        if times is None:
            raise OptionError("there is nothing to report yet: iterate the loader first")
        source = self._compiling.source
        return report_of(times, can_be_cached(source), disk_states(source))

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which `load_state_dict` continues with the next batch.

        It can be taken between any two batches, however many have been prefetched, and loaded into a loader
        with another number of workers. It holds random states and a position, about 15 KB, and the state of
        a dataset with torchdata's `state_dict` and `load_state_dict`. A resume loads the epoch's earlier
        batches again only for an iterable dataset without these methods.

        Returns: A dict of numbers, strings, lists and tensors, for `torch.save`.
        """
        if torch_private.missing:
            return {"missing": torch_private.explanation()}
        return self._epochs.state_dict(self._view(with_batches=True), int(self.num_workers), self._keeps_seed)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration continue where `state_dict` was called.

        The order of the epoch is the saved one, independent of the current global random states, which do not
        change. Later epochs have the saved order too, unless other code draws from torch's global random
        state and is not restored; with `seed` or `generator`, that does not matter.

        Args:
            state: The result of `state_dict`, of a loader with the same dataset, batches and sampler.

        Raises:
            OptionError: The state is invalid, or from a loader with another seed, batch size, number of
                samples or batches, kind of sampler or, if workers changed its dataset, number of workers.
        """
        if torch_private.missing:
            raise OptionError(f"a state cannot be loaded here: {torch_private.explanation()}")
        load_own_state(self.dataset, state)  # first, because it may change the dataset's length
        self._epochs.load_state_dict(self._view(with_batches=True), int(self.num_workers), state)
