"""The epochs of one loader: their numbers, what each is drawn from, and where the latest one is."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, SupportsIndex

import torch
from torch.utils.data import IterableDataset

from fastload.errors import OptionError
from fastload.loader.resume.drawing import (
    ORDER,
    TRANSFORMS,
    WORKERS,
    drawn_from,
    mixed,
    set_sampler_epochs,
    set_sampler_states,
    start_state,
)
from fastload.loader.resume.progress import Progress, State
from fastload.loader.resume.saving import ANOTHER_STATE, fingerprint, from_state_dict, to_state_dict


class Epochs:
    """Begins a loader's epochs, or goes on with one whose state was loaded.

    Args:
        seed: What the order of epoch `n` is a function of, with `n`; None: it is drawn as torch's is.
        generator: What the user wants it to be drawn from instead, if anything.

    Attributes:
        generator: With a seed, what the order is drawn from; else None.

    Raises:
        OptionError: The seed is no integer of at least 0, or there is a generator besides.
    """

    def __init__(self, seed: int | None, generator: torch.Generator | None) -> None:
        self.generator = _generator(seed, generator)
        self._count = 0
        self._progress: Progress | None = None
        self._loaded: Progress | None = None
        # The random state that later epochs are drawn from, after a resume in a process whose own
        # state is not the one that was left.
        self._later: State | None = None

    def begin(self, loader: Any, iterate: Callable[[Progress], Any]) -> Any:
        """Begins an epoch.

        Args:
            loader: The DataLoader.
            iterate: Gives the epoch's iterator.

        Returns:
            That iterator.
        """
        if self._progress is not None and self._progress.ahead is not None:
            if not self._progress.is_finished:
                self._progress.ahead.take_back()
            self._progress.ahead = None
        resumed, self._loaded = self._loaded, None
        if resumed is not None:
            self._prepare(loader, resumed)
        begun = resumed if resumed is not None and resumed.is_begun else None
        source = self._later if begun is None else begun.start["global"]
        became: State = {}
        try:
            with contextlib.nullcontext() if source is None else drawn_from(source, became):
                self._progress = self._seeded(loader, begun or self._new_progress(loader, resumed))
                iterator = iterate(self._progress)
                if source is not None:
                    iterator.draw_first()
                    self._progress.is_drawn = True
        except BaseException:
            self._loaded = resumed
            raise
        self._progress.users_state = None
        if self._later is not None:
            self._later = became
        return iterator

    def state_dict(self, loader: Any) -> State:
        """Where the loader is: see `DataLoader.state_dict`."""
        progress = self._loaded or self._progress
        if progress is None or progress.is_finished:
            progress = self._new_progress(loader)
            progress.is_begun = False
            if self._later is not None:
                progress.start["global"] = self._later
        elif not progress.is_drawn:
            # Others may draw until the first batch is asked for, and the order is drawn after them.
            progress = replace(progress, start=start_state(loader), is_begun=False, draws_seeds=False)
        if self._later is not None and progress is not self._loaded:
            progress.users_state = ANOTHER_STATE
        return to_state_dict(progress, _settings(loader))

    def load_state_dict(self, loader: Any, state: State) -> None:
        """Makes the next epoch the one that a state tells of: see `DataLoader.load_state_dict`."""
        self._loaded = from_state_dict(state, _settings(loader))
        # Now, not when the iteration begins, so that the user's own call of `set_epoch` is the last.
        set_sampler_epochs(loader, self._loaded.start)

    def worker_seeds(self, loader: Any) -> torch.Generator | None:
        """What the workers' seeds of the latest epoch are drawn from, if not the loader's generator."""
        assert self._progress is not None
        if self.generator is not None and loader.seed is not None:
            seed = mixed(operator.index(loader.seed), self._progress.epoch, WORKERS)
            return torch.Generator().manual_seed(seed)
        if self._progress.draws_seeds:
            return None
        # What was to be drawn has been, so an iterator made anew must leave the generator alone.
        seed = mixed(self._progress.base_seed or 0, self._progress.epoch, WORKERS)
        return torch.Generator().manual_seed(seed)

    def _new_progress(self, loader: Any, resumed: Progress | None = None) -> Progress:
        progress = Progress(self._count, start_state(loader))
        # An iterator draws the workers' seeds when it is made; a persistent one is made once.
        if resumed is not None:
            progress.draws_seeds, progress.base_seed = resumed.draws_seeds, resumed.base_seed
        elif loader._iterator is not None and not loader._iterator.draws_each_epoch:
            progress.draws_seeds, progress.base_seed = False, loader._iterator.base_seed
        return progress

    def _prepare(self, loader: Any, resumed: Progress) -> None:
        """Puts generators and samplers where they were, and decides what later epochs are drawn from."""
        # Persistent workers cannot be told where to go on.
        loader._iterator = None
        set_sampler_states(loader, resumed.start)
        is_users_restored = resumed.users_state == fingerprint()
        self._later = None if is_users_restored else resumed.start["global"]
        self._count = resumed.epoch

    def _seeded(self, loader: Any, progress: Progress) -> Progress:
        """Readies what an epoch is drawn from."""
        self._count = progress.epoch + 1
        if self.generator is not None and loader.seed is not None:
            seed = operator.index(loader.seed)
            self.generator.manual_seed(mixed(seed, progress.epoch, ORDER))
            progress.epoch_seed = mixed(seed, progress.epoch, TRANSFORMS)
        return progress


def _settings(loader: Any) -> State:
    """What a loader that goes on from this one's state must have in common with it."""
    samples = batches = None
    # A dataset that nobody has asked for its length may raise anything.
    with contextlib.suppress(Exception):
        samples = len(loader.dataset)
    if not isinstance(loader.dataset, IterableDataset):
        with contextlib.suppress(TypeError, NotImplementedError):
            batches = len(loader)
    return {
        "seed": None if loader.seed is None else operator.index(loader.seed),
        "batch_size": loader.batch_size,
        "sampler": type(loader.sampler).__name__,
        "samples": samples,
        "batches": batches,
        # A plain number, which torch.load takes with weights_only.
        "num_workers": int(loader.num_workers),
    }


def _generator(seed: int | None, generator: torch.Generator | None) -> torch.Generator | None:
    if seed is None:
        return None
    if generator is not None:
        raise OptionError("seed and generator exclude each other: the seed makes a generator of its own")
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex) or operator.index(seed) < 0:
        raise OptionError(f"seed must be an integer of at least 0, got {seed!r}")
    # As for the first epoch already: frameworks take the sampler without asking this loader to iterate.
    return torch.Generator().manual_seed(mixed(operator.index(seed), 0, ORDER))
