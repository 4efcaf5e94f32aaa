"""Replacement of torch's DataLoader by fastload's in a script that is not edited."""

from __future__ import annotations

import abc
import contextlib
import functools
import io
import os
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import FrameType
from typing import Any

import numpy as np
import torch.utils.data
from torch.utils.data import Dataset

from fastload.datasets.within import image_datasets_in, use_cache_in
from fastload.errors import OptionError
from fastload.loader.arguments import LoaderView
from fastload.loader.clock import EpochTimes, StepClock
from fastload.loader.dataloader import DataLoader
from fastload.system.patching import patched
from fastload.system.script import LIBRARY_FOLDERS

# In DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers), after the dataset.
_ARGUMENTS_BEFORE_WORKERS = 5

_TorchsDataLoader = torch.utils.data.DataLoader

# The gain is the median of this many turns; further ones are left out if those before took this long.
_TURNS = 3
_MOST_TURNS_S = 3.0

Collate = Callable[[list[Any]], object]


class DescribedCollate:
    """Base class of collate functions that are not the script's, but those of a patched library.

    Attributes:
        changes: The way in which they make batches, as a clause.
        to_keep: The line that has the same effect in a script that runs without being patched.
    """

    changes: str
    to_keep: str


@dataclass(slots=True)
class ReplacedLoader:
    """The loaders that one line of a script creates.

    Attributes:
        place: The file and line, `train.py:31`.
        is_direct: True if that line itself creates the loader, not a library that it calls.
        is_remade: True if a library makes another loader from it, as Accelerate and Lightning do.
        given: The class name of the script's dataset.
        samples: The number of its samples; None if it has no length.
        is_compiled: True if it loads from a compiled dataset instead.
        changes: The way in which each step of its transform is carried out, before the first epoch; ""
            without PIL.
        to_keep: The line that has the same effect in a script, if there is one of its own for it.
        latest: Of the latest loader whose epoch has begun: the script's dataset, the one that it loads from,
            and its collate_fn; None before.
        clock: The times of the latest epoch; None before the first.
    """

    place: str
    is_direct: bool
    given: str
    samples: int | None
    is_compiled: bool
    changes: str
    to_keep: str = ""
    is_remade: bool = field(default=False, compare=False)
    latest: tuple[Dataset[object], Dataset[object], Collate] | None = field(default=None, compare=False)
    clock: StepClock | None = field(default=None, compare=False)

    @property
    def times(self) -> EpochTimes | None:
        """Times of the latest epoch; None before its first batch."""
        return None if self.clock is None else self.clock.times()

    @property
    def has_gain(self) -> bool:
        """True if its samples are made faster, or workers send their batches faster."""
        return self.is_compiled or self.uses_workers

    @property
    def uses_workers(self) -> bool:
        """True if workers have loaded its batches."""
        return bool(self.times and self.times.num_workers)

    def explained(self) -> str:
        """Return the way in which each step is carried out: other threads may have begun since."""
        if self.latest is None or not self.changes or isinstance(self.latest[2], DescribedCollate):
            return self.changes
        from fastload.datasets.compiled.explain import explanation

        return explanation(self.latest[1])

    def batch_cpu_s(self) -> tuple[float, float] | None:
        """Measure the CPU seconds of a batch of the script's dataset, as it is and compiled; None if unknown.

        The samples are spread over the dataset, and made by both in turns. Call it after the script's end.
        """
        times = self.times
        if self.latest is None or times is None or not self.is_compiled or not self.samples:
            return None
        given, compiled, collate = self.latest
        size = times.batch_size
        indices = np.linspace(0, self.samples - 1, size).astype(int).tolist()
        sides = (
            _TorchsDataLoader(given, size, sampler=indices, collate_fn=collate),
            DataLoader(compiled, size, sampler=indices, collate_fn=collate, num_workers=0),
        )
        seconds: tuple[list[float], list[float]] = [], []
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # threads that wait for each other take CPU time, too
        # The script is over: neither the output nor an error of its dataset should be seen.
        nowhere = io.StringIO()
        with contextlib.suppress(Exception), redirect_stdout(nowhere), redirect_stderr(nowhere):
            end_s = time.perf_counter() + _MOST_TURNS_S
            while len(seconds[1]) < _TURNS and (not seconds[1] or time.perf_counter() < end_s):
                for side, found in zip(sides, seconds, strict=True):
                    begun = time.process_time()
                    list(side)
                    found.append(time.process_time() - begun)
        torch.set_num_threads(threads)
        return (statistics.median(seconds[0]), statistics.median(seconds[1])) if seconds[1] else None


class _Replacing:
    """The loaders that a script has created so far, and the way in which they are made."""

    def __init__(self, cache: str | None, warn: Callable[[str], None], is_tuned: bool) -> None:
        self._cache = cache
        self.is_tuned = is_tuned
        self.loaders: list[ReplacedLoader] = []
        self._warn = warn
        self._warned: set[str] = set()
        # Weakly, because the script may drop a dataset.
        self._loaded: list[tuple[weakref.ref[object], ReplacedLoader]] = []
        self._began_in = os.getcwd()

    def use_cache(self, given: object, source: object) -> None:
        """Cache the image files of the datasets within `source`; warn if that is not possible."""
        if self._cache is None:
            return
        parts = image_datasets_in(source)
        try:
            if source is not given and not parts:
                use_cache_in(source, self._cache)  # its error names the dataset
            for part in parts:
                if part.cached.kind is None and not part.lies_in_memory:
                    part.use_cache(self._cache)
        except OptionError as error:
            if str(error) not in self._warned:
                self._warned.add(str(error))
                self._warn(str(error))

    def add(self, loader: StandInLoader, given: object, source: object, frame: FrameType) -> ReplacedLoader:
        """Return the entry of a loader that a script creates in a frame.

        `source` is the dataset that it loads from instead of the dataset `given`.
        """
        place, is_direct = _place(self._began_in, loader, frame)
        of_this = (each for of, each in self._loaded if of() is given)
        # Frameworks create new loaders from the datasets of existing ones.
        known = None if is_direct else next(of_this, None)
        if known is None:
            made = _described(place, is_direct, given, source, loader.collate_fn)
            # Another loader of the same line and kind: a script may create one for each epoch.
            known = next((each for each in self.loaders if each == made), made)
            if known is made:
                self.loaders.append(made)
            with contextlib.suppress(TypeError):  # there are no weak references to lists and ranges
                self._loaded.append((weakref.ref(loader.dataset), known))
        else:
            known.is_remade = True
        return known


class StandInLoader(DataLoader[Any], metaclass=abc.ABCMeta):
    """fastload's loader in place of torch's class while a script runs: compiled, and recorded.

    As with torch's class, all loaders are instances of it, those that the script makes with fastload's own
    class, too.
    """

    replacing: _Replacing | None = None
    _given: Any = None
    _replaced: ReplacedLoader | None = None

    @functools.wraps(DataLoader.__init__)  # type: ignore[misc] # of a constructor
    def __init__(self, dataset: Any, *arguments: Any, **options: Any) -> None:
        replacing = StandInLoader.replacing
        if replacing is None:
            super().__init__(dataset, *arguments, **options)
            return
        if not replacing.is_tuned and len(arguments) < _ARGUMENTS_BEFORE_WORKERS:
            options.setdefault("num_workers", 0)
        options.setdefault("sharded", False)  # as the script has it
        super().__init__(dataset, *arguments, **options)
        source = self._view().dataset
        replacing.use_cache(dataset, source)
        self._given = dataset
        self._replaced = replacing.add(self, dataset, source, sys._getframe(1))

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return issubclass(kind, _TorchsDataLoader) if cls is StandInLoader else NotImplemented

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_given": None, "_replaced": None}

    def _new_clock(self, view: LoaderView) -> StepClock:
        clock = super()._new_clock(view)
        if self._replaced is not None:
            self._replaced.latest = self._given, view.dataset, self.collate_fn
            self._replaced.clock = clock
        return clock


@contextlib.contextmanager
def loaders_replaced(
    cache: str | None, warn: Callable[[str], None], is_tuned: bool
) -> Iterator[list[ReplacedLoader]]:
    """Replace `torch.utils.data.DataLoader` by fastload's, with compiled datasets; yield the loaders created.

    Enter it before any module of the script is imported, because a module may import the class by name.

    Args:
        cache: Set on datasets that are not in memory, unless the script sets one itself; None: no cache.
        warn: Called once with each reason why a cache cannot be used; the script then runs without one.
        is_tuned: True to decide the number of workers where the script leaves it unset; otherwise it is 0,
            as in torch, and random numbers are drawn as without fastload.
    """
    replacing = _Replacing(cache, warn, is_tuned)
    # The class is also looked up in the module that defines it.
    modules = torch.utils.data, sys.modules[_TorchsDataLoader.__module__]
    with patched(
        (StandInLoader, "replacing", replacing),
        *((module, "DataLoader", StandInLoader) for module in modules),
    ):
        yield replacing.loaders


def _described(place: str, is_direct: bool, given: Any, source: object, collate_fn: object) -> ReplacedLoader:
    samples = None
    with contextlib.suppress(Exception):  # an iterable dataset has no length
        samples = len(given)
    changes = to_keep = ""
    if isinstance(collate_fn, DescribedCollate):
        changes, to_keep = collate_fn.changes, collate_fn.to_keep
    elif find_spec("PIL") is not None:
        from fastload.datasets.compiled.explain import explanation

        changes = explanation(source)
    kind, is_compiled = given.__class__.__name__, source is not given
    return ReplacedLoader(place, is_direct, kind, samples, is_compiled, changes, to_keep)


def _place(began_in: str, loader: StandInLoader, creating: FrameType) -> tuple[str, bool]:
    """Return the innermost line of the script's own files, and whether that line itself creates the loader.

    If there is none, return the line that creates it. A script's own files lie beside it, those of a module
    that is run in the folder where it was started.
    """
    frame: FrameType | None = creating
    # Lightning wraps `__init__`; a subclass's own is no such wrapper.
    while type(loader) is StandInLoader and frame and next(iter(frame.f_locals.values()), None) is loader:
        frame = frame.f_back
    called = frame or creating
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None) or ""
    folder = began_in if getattr(main, "__spec__", None) else os.path.dirname(os.path.realpath(file))
    folder = os.path.join(folder, "")
    while frame is not None and not _is_own(frame.f_code.co_filename, folder, file):
        frame = frame.f_back
    is_direct = frame is called
    frame = frame or called
    return f"{frame.f_code.co_filename.removeprefix(folder)}:{frame.f_lineno}", is_direct


def _is_own(name: str, folder: str, file: str) -> bool:
    # A virtual environment may be in the script's folder.
    return name == file or (name.startswith(folder) and not name.startswith(LIBRARY_FOLDERS))
