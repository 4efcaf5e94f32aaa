"""fastload's DataLoader in place of torch's, for a script that nobody edits."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch.utils.data

from fastload.loader.clock import EpochTimes, StepClock
from fastload.loader.dataloader import DataLoader
from fastload.system.patching import patched


@dataclass(slots=True)
class ReplacedLoader:
    """Loaders that one line of a script made, and their replacement.

    Attributes:
        place: The file and line, `train.py:31`.
        given: The dataset that the script gave, as the name of its class.
        samples: The number of its samples; None if it has no length.
        changes: How each step of its transform is done; empty if nothing was compiled.
        clock: The times of the latest epoch; None before the first.
    """

    place: str
    given: str
    samples: int | None
    changes: str
    clock: StepClock | None = None

    @property
    def times(self) -> EpochTimes | None:
        """Times of the latest epoch; None before its first batch."""
        return None if self.clock is None else self.clock.times()


@contextlib.contextmanager
def loaders_replaced(folder: str) -> Iterator[list[ReplacedLoader]]:
    """Make `torch.utils.data.DataLoader` fastload's, with compiled datasets; yield what becomes of each.

    Places are in files of `folder` where the call came from there.
    """
    found: dict[str, ReplacedLoader] = {}
    replaced: list[ReplacedLoader] = []
    plain_init, plain_begin = DataLoader.__init__, DataLoader._begin

    @functools.wraps(plain_init)
    def init(self: Any, dataset: Any, *arguments: Any, **options: Any) -> None:
        options.setdefault("compile", find_spec("PIL") is not None)
        plain_init(self, dataset, *arguments, **options)
        place = _place(folder)
        if place not in found:
            found[place] = _described(place, dataset, self.dataset)
            replaced.append(found[place])
        self._replaced = found[place]

    @functools.wraps(plain_begin)
    def begin(self: Any, iterate: Any) -> Any:
        iterator = plain_begin(self, iterate)
        self._replaced.clock = self._clock
        return iterator

    # The class is also looked up in the module that defines it.
    modules = torch.utils.data, sys.modules[torch.utils.data.DataLoader.__module__]
    with patched(
        (DataLoader, "__init__", init),
        (DataLoader, "_begin", begin),
        *((module, "DataLoader", DataLoader) for module in modules),
    ):
        yield replaced


def _described(place: str, given: Any, compiled: Any) -> ReplacedLoader:
    samples = None
    with contextlib.suppress(Exception):  # an iterable dataset has no length
        samples = len(given)
    explain = getattr(compiled, "explain", None)
    return ReplacedLoader(place, type(given).__name__, samples, "" if explain is None else explain())


def _place(folder: str) -> str:
    """Return the innermost line of the script's own files that is running, else the line that called."""
    frame: Any = sys._getframe(2)
    called = frame
    while frame is not None and not frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    frame = frame or called
    name = frame.f_code.co_filename
    return f"{name.removeprefix(folder).lstrip('/')}:{frame.f_lineno}"
