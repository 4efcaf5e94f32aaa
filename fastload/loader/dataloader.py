"""DataLoader: torch's, under the same name and with the same behaviour, over shared-memory slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import Dataset, Sampler
from torch.utils.data.dataloader import _DatasetKind

from fastload.datasets.cache.options import Cache
from fastload.datasets.cache.resident import Resident
from fastload.errors import OptionError
from fastload.loader.clock import StepClock
from fastload.loader.device import resolve_device
from fastload.loader.iterators import Setting, SingleProcessIterator, Start, WorkersIterator
from fastload.loader.report import EpochReport, report_of
from fastload.loader.resume import Epochs, Progress
from fastload.loader.times import EpochTimes
from fastload.loader.tuning.caching import (
    LoaderCache,
    asks_for_device,
    is_filling,
    own_choice,
    why_not_resident,
)
from fastload.loader.tuning.epoch import TunedIterator
from fastload.loader.tuning.plan import Alone, Plan
from fastload.loader.tuning.prefetching import PrefetchTuner
from fastload.loader.tuning.resident import ResidentIterator
from fastload.loader.tuning.tuner import Tuner
from fastload.loader.tuning.unsaid import UNSAID, Unsaid, said

_T_co = TypeVar("_T_co", covariant=True)

if TYPE_CHECKING:
    from torch.utils.data import DataLoader as _Base
else:

    class _Base:
        """torch's class, with as many type parameters as it has: newer releases have two."""

        def __class_getitem__(cls, _: Any) -> Any:
            return torch.utils.data.DataLoader[tuple(torch.utils.data.DataLoader.__parameters__)]


class DataLoader(_Base[_T_co]):
    """`torch.utils.data.DataLoader`, parameter for parameter and batch for batch, but faster.

    Import it in place of torch's. Batches come from the workers through shared memory, without being
    pickled or copied; they can be moved to a GPU ahead of their use; and an epoch can be resumed where it
    was left. Of `num_workers`, `prefetch_factor`, `pin_memory` and `persistent_workers`, what is not said is
    decided by measuring the first epoch's own batches: see `plan`. Every difference from torch's class is
    listed in docs/compatibility.md.

    Args:
        dataset: As all parameters down to `in_order`, this is torch's; torch's defaults hold too, but for
            the four that are decided.
        batch_size: See `dataset`.
        shuffle: See `dataset`.
        sampler: See `dataset`.
        batch_sampler: See `dataset`.
        num_workers: See `dataset`.
        collate_fn: See `dataset`.
        pin_memory: See `dataset`.
        drop_last: See `dataset`.
        timeout: See `dataset`.
        worker_init_fn: See `dataset`.
        multiprocessing_context: See `dataset`.
        generator: See `dataset`.
        prefetch_factor: See `dataset`.
        persistent_workers: See `dataset`.
        pin_memory_device: See `dataset`.
        in_order: See `dataset`.
        device: Where batches are handed out, such as `"cuda"`. They are copied there ahead of their use, on
            a stream of their own. None, or a device that this machine lacks: in the CPU's memory.
        cache: Where the bytes of a FolderDataset or a PackedDataset are kept: `"auto"` measures and decides;
            `"ram"`, `"tmpfs"`, `"page"` and `"device"` are obeyed; see `fastload.Cache`. None: as the dataset
            itself says.
        seed: Makes the order that `shuffle` gives epoch `n`, and the workers' seeds, a function of
            (seed, n) alone, whatever else draws random numbers. None: they are drawn as torch's are. It
            excludes `generator`. A sampler that is passed draws as it ever did.

    Raises:
        OptionError: `device`, `cache` or `seed` has a value that cannot be obeyed.
        ValueError: Any other parameter has, as torch says it.

    Example:
        >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)  # doctest: +SKIP
        >>> for images, labels in loader: ...  # doctest: +SKIP
    """

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = UNSAID,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = UNSAID,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = UNSAID,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: torch.device | str | int | None = None,
        cache: str | Cache | None = None,
        seed: int | None = None,
    ) -> None:
        self.device = device
        self.cache = cache
        self.seed = seed
        self._epochs = Epochs(seed, generator)
        self._device = resolve_device(device)
        self._said = said(
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            persistent_workers=persistent_workers,
            device=device,
            cache=cache,
        )
        self._is_tuned = "num_workers" not in self._said
        self._tuner: Tuner | None = None
        self._obeyed: Plan | None = None
        self._prefetching: PrefetchTuner | None = None
        self._clock = StepClock()
        self._kept: LoaderCache | None = None
        # The epoch that is about to begin.
        self._beginning: Progress | None = None
        self._thread = get_ident()
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            # torch would refuse what is said of workers (a context, a prefetch_factor) where none are.
            1 if self._is_tuned else num_workers,
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
        if cache is not None:
            self._kept = self._cache_of(cache)
        if self._is_tuned:
            self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        elif "prefetch_factor" not in self._said and self.prefetch_factor is not None:
            self.prefetch_factor = Unsaid(self.prefetch_factor)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            # Annotations written for a torch with one type parameter more, or one less, stay valid.
            given = parameters if isinstance(parameters, tuple) else (parameters,)
            wanted = len(cls.__parameters__)
            if wanted:
                given = (*given, Any)[:wanted]
            return super().__class_getitem__(given)

    def __getstate__(self) -> dict[str, Any]:
        # What was measured is of this process's epochs, and refers to them. A copy measures for itself.
        measured = {"_tuner": None, "_obeyed": None, "_prefetching": None, "_clock": StepClock()}
        return {**self.__dict__, **measured}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._thread = get_ident()

    def __iter__(self) -> Any:
        """Begins an epoch, or goes on with the one whose state has been loaded."""
        return self._begin(super().__iter__)

    def _get_iterator(self) -> Any:
        # Called by torch's `__iter__`, and by subclasses that want a new iterator of their own.
        return self._begin(self._make_iterator) if self._beginning is None else self._make_iterator()

    def _begin(self, iterate: Callable[[], Any]) -> Any:
        """Begins an epoch with the iterator that `iterate()` returns."""
        if self._said_since():
            self._is_tuned = "num_workers" not in self._said
            self._tuner = self._obeyed = self._prefetching = None
        if self._is_tuned:
            self._follow_plan()

        def iterator_of(progress: Progress) -> Any:
            self._beginning, self._clock = progress, StepClock()
            if isinstance(self._iterator, WorkersIterator):
                self._iterator.begin_epoch(self, self._start())
            return iterate()

        try:
            iterator = self._epochs.begin(self, iterator_of)
        finally:
            self._beginning = None
        if not isinstance(self._iterator, WorkersIterator):
            # torch would begin the next epoch with it, and only workers can live on.
            self._iterator = None
        return iterator

    def _said_since(self) -> bool:
        """Takes note of what the user has set in the attributes since; says whether that is anything."""
        values = {
            name: getattr(self, name)
            for name in ("num_workers", "prefetch_factor", "pin_memory")
            if name not in self._said
        }
        new = said(**values)
        self._said.update(new)
        return bool(new)

    def _follow_plan(self) -> None:
        """Shows in the attributes how the next epoch begins, before torch looks at them."""
        tuner = self._tuned_by()
        tuner.open(self)
        tuner.take_up(is_filling(self.dataset))
        if not tuner.is_settled:
            # What another loader, or an earlier search, came to is no longer what is done.
            self.num_workers, self._iterator = UNSAID, None
        elif self._obeyed is not tuner.plan:
            self.obey(tuner.plan)

    @property
    def plan(self) -> Plan:
        """How batches are loaded: what you said, what was decided, and the measurement behind each choice.

        Printed, it is a table. Before the first epoch it says that nothing has been measured.

        Example:
            >>> print(loader.plan)  # doctest: +SKIP
        """
        tuner = self._tuned_by()
        if self._kept is None and (own := own_choice(self.dataset)) is not None:
            tuner.note_cache(own)
        return tuner.plan

    @property
    def last_epoch(self) -> EpochTimes | None:
        """What the steps of the latest epoch took, so far if it goes on; None before its first batch."""
        return self._clock.times()

    def report(self) -> EpochReport:
        """Return where the latest epoch's time went, and the next step.

        It rests on what every epoch notes by the way. `fastload doctor train.py` looks closer: at decoding
        and transforms apart, at the disk, at what the main thread does between two batches.

        Raises:
            OptionError: No batch has been handed out yet.
        """
        times = self.last_epoch
        if times is None:
            raise OptionError("there is nothing to report yet: iterate the loader first")
        return report_of(times)

    def obey(self, plan: Plan) -> None:
        """Shows in the attributes what a plan says, as far as it was not said by the user.

        Args:
            plan: The plan.
        """
        self._obeyed = plan
        if self._is_tuned:
            self.num_workers = Unsaid(plan.num_workers.value)
        if "prefetch_factor" not in self._said:
            prefetch = plan.prefetch_factor.value
            self.prefetch_factor = None if prefetch is None else Unsaid(prefetch)
        if "pin_memory" not in self._said:
            self.pin_memory = Unsaid(plan.pin_memory.value)  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: what `load_state_dict` needs to go on with the next batch.

        It may be taken at any time, between any two batches, however many have been prefetched, and loaded
        into a loader with another number of workers. It takes about 12 KB: random states, a position.
        Batches of a map-style dataset are not loaded again on a resume; those of an iterable one are,
        unless it is stateful (has `state_dict` and `load_state_dict`, as torchdata's protocol says).

        Returns:
            A dict of numbers, strings, lists and tensors, for `torch.save`.
        """
        return self._epochs.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where `state_dict` was called.

        The order of the epoch is the one that it had, whatever the global random states are now; these are
        left alone. The orders of later epochs follow too, unless other code draws from torch's global
        random state and is not restored along with it; with `seed` or `generator` that does not matter.

        Args:
            state: What `state_dict` returned, of a loader with the same dataset, batches and sampler.

        Raises:
            OptionError: It is no such state, or that of a loader with another seed, batch size, number of
                samples or batches, or kind of sampler; of a stateful iterable dataset, with other workers.
        """
        self._epochs.load_state_dict(self, state)

    def _start(self) -> Start:
        """What an iterator of the epoch that is about to begin begins with."""
        assert self._beginning is not None
        setting = Setting(self.num_workers, self.prefetch_factor, self.pin_memory, self.persistent_workers)
        # An iterable dataset is loaded in one way alone.
        may_change = self._is_tuned and self._dataset_kind == _DatasetKind.Map and not self._tuned_by().is_off
        seeds = self._epochs.worker_seeds(self)
        return Start(self._beginning, self._device, seeds, self._clock, setting, seeds_batches=may_change)

    def _make_iterator(self) -> Any:
        start = self._start()
        setting = start.setting
        resident = self._opened_cache()
        if resident is not None:
            start = start._replace(setting=Setting(0, None), reads=False, seeds_batches=False)
            return ResidentIterator(self, start, resident)
        if self._is_tuned:
            tuner = self._tuned_by()
            # Workers that live on are torch's business, once it is settled how many they are.
            if not (tuner.is_settled and self.persistent_workers and self.num_workers):
                return TunedIterator(self, start._replace(setting=tuner.setting()), tuner)
            generator = self.generator or torch.default_generator
            state = generator.get_state()
            try:
                return WorkersIterator(self, start)
            except Exception as error:
                generator.set_state(state)
                tuner.note_no_workers(error)
            self.obey(tuner.plan)
            return TunedIterator(self, self._start()._replace(setting=tuner.setting()), tuner)
        else:
            self.check_worker_number_rationality()
        if not self.num_workers:
            return SingleProcessIterator(self, start)
        if not self._is_tuned and self._may_ask_ahead():
            prefetching = self._prefetching = self._prefetching or PrefetchTuner(self._tuned_by())
            setting = setting._replace(prefetch_factor=prefetching.prefetch_factor)
            start = start._replace(setting=setting, watch=prefetching.watch(self, self._clock))
        return WorkersIterator(self, start)

    def _may_ask_ahead(self) -> bool:
        """Whether it is to be found out how many batches to ask workers for in advance."""
        is_said = "prefetch_factor" in self._said
        return not is_said and self.in_order and self._dataset_kind == _DatasetKind.Map

    def note_alone(self, alone: Alone | None) -> None:
        """Decides what `cache="auto"` has left open, once it is known what loading and training take.

        Args:
            alone: What a batch takes without workers; None: that will not be known.
        """
        if self._kept is not None and self._kept.waits_for_measurements:
            self._kept.decide(self.dataset, alone)
            self._tuned_by().note_cache(self._kept.choice)

    def _cache_of(self, asked: str | Cache) -> LoaderCache:
        is_elsewhere = self._device is not None or self.device is None
        return LoaderCache(
            asked, self._device if is_elsewhere else torch.device("cpu"), why_not_resident(self)
        )

    def _opened_cache(self) -> Resident | None:
        """The dataset on the device, if it lies there, with every cache opened that can be by now."""
        if self._kept is None:
            if not asks_for_device(self.dataset):
                return None
            self._kept = self._cache_of("device")
        tuner = self._tuned_by()
        self._kept.open(self.dataset)
        tuner.note_cache(self._kept.choice)
        if tuner.is_settled:
            self.note_alone(tuner.plan.measured.alone)
        return self._kept.resident

    def _tuned_by(self) -> Tuner:
        if self._tuner is None:
            self._tuner = Tuner(self, self._said)
        return self._tuner
