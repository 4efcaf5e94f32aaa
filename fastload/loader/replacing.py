"""Replacement of torch's DataLoader by fastload's in a script that is not edited."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch.utils.data

import fastload
from fastload.datasets.within import image_datasets_in, use_cache_in
from fastload.errors import OptionError
from fastload.loader.clock import EpochTimes, StepClock
from fastload.loader.dataloader import DataLoader
from fastload.system.patching import patched
from fastload.system.script import LIBRARY_FOLDERS

# In DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers), after the dataset.
_ARGUMENTS_BEFORE_WORKERS = 5


class ScriptsLoader(DataLoader[Any]):
    """Loader of a script that imports fastload's DataLoader itself, which leaves nothing to replace."""

    # The original method: while a script runs, DataLoader's is replaced by one that records its loaders.
    _new_clock = DataLoader._new_clock


@dataclass(slots=True)
class ReplacedLoader:
    """The loaders that one line of a script creates.

    Attributes:
        place: The file and line, `train.py:31`.
        is_direct: True if that line itself creates the loader, not a library that it calls.
        given: The class name of the script's dataset.
        samples: The number of its samples; None if it has no length.
        is_compiled: True if it loads from a compiled dataset instead.
        changes: The way in which each step of its transform is carried out; "" without PIL.
        clock: The times of the latest epoch; None before the first.
    """

    place: str
    is_direct: bool
    given: str
    samples: int | None
    is_compiled: bool
    changes: str
    clock: StepClock | None = field(default=None, compare=False)

    @property
    def times(self) -> EpochTimes | None:
        """Times of the latest epoch; None before its first batch."""
        return None if self.clock is None else self.clock.times()


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
    replaced: list[ReplacedLoader] = []
    warned: set[str] = set()
    # Weakly, because the script may drop a dataset.
    loaded: list[tuple[weakref.ref[object], ReplacedLoader]] = []
    plain_init, plain_clock = DataLoader.__init__, DataLoader._new_clock
    began_in = os.getcwd()

    @functools.wraps(plain_init)
    def init(self: Any, dataset: Any, *arguments: Any, **options: Any) -> None:
        is_scripts = isinstance(self, ScriptsLoader)
        if not is_scripts:
            options.setdefault("compile", find_spec("PIL") is not None or None)
            if not is_tuned and len(arguments) < _ARGUMENTS_BEFORE_WORKERS:
                options.setdefault("num_workers", 0)
        plain_init(self, dataset, *arguments, **options)
        try:
            if cache is not None:
                source = self._compiling.source
                _use_cache(source, cache, is_compiled=source is not dataset)
        except OptionError as error:
            if str(error) not in warned:
                warned.add(str(error))
                warn(str(error))
        if is_scripts:
            return
        place, is_direct = _place(began_in, self)
        of_this = (loader for of, loader in loaded if of() is dataset)
        # Frameworks create new loaders from the datasets of existing ones.
        known = None if is_direct else next(of_this, None)
        if known is None:
            made = _described(place, is_direct, dataset, self)
            # Another loader of the same line and kind: a script may create one for each epoch.
            known = next((loader for loader in replaced if loader == made), made)
            if known is made:
                replaced.append(made)
            with contextlib.suppress(TypeError):  # there are no weak references to lists and ranges
                loaded.append((weakref.ref(self.dataset), known))
        self._replaced = known

    @functools.wraps(plain_clock)
    def new_clock(self: Any, view: Any) -> StepClock:
        clock: StepClock = plain_clock(self, view)
        self._replaced.clock = clock
        return clock

    # The class is also looked up in the module that defines it.
    modules = torch.utils.data, sys.modules[torch.utils.data.DataLoader.__module__]
    with patched(
        (DataLoader, "__init__", init),
        (DataLoader, "_new_clock", new_clock),
        (fastload, "DataLoader", ScriptsLoader),
        *((module, "DataLoader", DataLoader) for module in modules),
    ):
        yield replaced


def _use_cache(dataset: object, cache: str, is_compiled: bool) -> None:
    """Cache the image files of the datasets within another one; raise OptionError if that is not possible."""
    parts = image_datasets_in(dataset)
    if is_compiled and not parts:
        use_cache_in(dataset, cache)  # its error names the dataset
    for part in parts:
        if part.cached.kind is None and not part.lies_in_memory:
            part.use_cache(cache)


def _described(place: str, is_direct: bool, given: Any, loader: DataLoader[Any]) -> ReplacedLoader:
    samples = None
    with contextlib.suppress(Exception):  # an iterable dataset has no length
        samples = len(given)
    # A collate function of fastload may describe how it makes batches.
    changes = str(getattr(loader.collate_fn, "changes", ""))
    if not changes and find_spec("PIL") is not None:
        from fastload.datasets.compiled.compile import explain

        changes = explain(loader._compiling.source)
    is_compiled = loader._compiling.source is not given
    return ReplacedLoader(place, is_direct, type(given).__name__, samples, is_compiled, changes)


def _place(began_in: str, loader: DataLoader[Any]) -> tuple[str, bool]:
    """Return the innermost line of the script's own files, and whether that line itself creates the loader.

    If there is none, return the line that creates it. A script's own files lie beside it, those of a module
    that is run in the folder where it was started.
    """
    frame: Any = sys._getframe(2)
    # Lightning wraps `__init__`; a subclass's own is no such wrapper.
    while type(loader) is DataLoader and next(iter(frame.f_locals.values()), None) is loader:
        frame = frame.f_back
    called = frame
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
