"""Epochs of one loader: their numbers, their random states, and the progress of the latest one."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace

import torch

from fastload.errors import OptionError
from fastload.loader.arguments import LoaderView
from fastload.loader.resume.dataset_states import own_state
from fastload.loader.resume.drawing import (
    ORDER,
    TRANSFORMS,
    WORKERS,
    State,
    changed_epoch,
    derived_seed,
    drawn_from,
    global_checksum,
    rank_of,
    ranks_of,
    set_sampler_epochs,
    set_sampler_states,
    sharded_name,
    start_state,
)
from fastload.loader.resume.progress import ANOTHER_STATE, DatasetProgress, EpochSeeds, Progress, SavedEpoch
from fastload.loader.sharded_sampler import ShardedSampler
from fastload.loader.sharding import checked_index


class Epochs:
    """Begins a loader's epochs, and resumes one whose state was loaded.

    With a seed, `generator` is the source of each epoch's order, seeded by (seed, epoch); else it is None.
    OptionError is raised for a seed that is not an integer of at least 0, or is given with a generator.
    """

    def __init__(self, seed: int | None, generator: torch.Generator | None) -> None:
        if seed is not None and generator is not None:
            raise OptionError("seed and generator cannot be combined: the seed makes its own generator")
        self._seed = None if seed is None else checked_index("seed", seed)
        # Seeded now for the first epoch: frameworks take the sampler without iterating this loader.
        self.generator = (
            None if self._seed is None else torch.Generator().manual_seed(derived_seed(self._seed, 0, ORDER))
        )
        self._count = 0
        self._progress: Progress | None = None
        self._loaded: SavedEpoch | None = None
        # For epochs after a resume: True if they keep the base seed, as those of the loader that saved would.
        self._keeps_seed: bool | None = None
        # The random state that later epochs are drawn from, after a resume in a process whose own state was
        # not restored.
        self._later: State | None = None

    @property
    def is_resuming(self) -> bool:
        """True until the epoch of a loaded state begins."""
        return self._loaded is not None

    @contextlib.contextmanager
    def beginning(self, view: LoaderView, keeps_seed: bool) -> Iterator[tuple[Progress, bool]]:
        """Begin an epoch, whose iterator is made in the block; yield its progress.

        Also yield True if the order must be drawn in the block, where the global random states are those of
        the epoch, not the user's. `keeps_seed` is True if persistent workers keep their base seed.
        """
        before = self._progress
        if before is not None and before.take_back_draws is not None and not before.is_finished:
            before.take_back_draws()
        step_size = _step_size(view)
        saved, self._loaded = self._resumed(view), None
        resumed = None if saved is None else saved.progress
        if saved is not None and resumed is not None:
            set_sampler_states(view, resumed.seeds.start)
            is_users_restored = saved.users_state == global_checksum()
            self._later = None if is_users_restored else resumed.seeds.start["global"]
            self._count, self._keeps_seed = resumed.epoch, saved.keeps_seed
            if step_size is not None:
                view.sample_sampler.skipped = resumed.handed.first * step_size
        begun = resumed if saved is not None and saved.is_begun else None
        source = self._later if begun is None else begun.seeds.start["global"]
        became: State = {}
        try:
            with contextlib.nullcontext() if source is None else drawn_from(source, became):
                self._progress = progress = begun or self._new_progress(view, keeps_seed, resumed)
                self._count = progress.epoch + 1
                batches = None
                if self.generator is not None and self._seed is not None:
                    self.generator.manual_seed(derived_seed(self._seed, progress.epoch, ORDER))
                    batches = derived_seed(self._seed, progress.epoch, TRANSFORMS)
                progress.seeds.begin(rank_of(view), batches)
                yield progress, source is not None
        except BaseException:
            self._loaded = saved
            raise
        if self._later is not None:
            self._later = became

    def state_dict(self, view: LoaderView, num_workers: int, keeps_seed: bool) -> State:
        """Return the loader's state: see `DataLoader.state_dict`."""
        saved = self._resumed(view) or self._saved(view, num_workers, keeps_seed)
        state = saved.to_state_dict(self._settings(view, num_workers))
        if num_workers == 0 and "dataset" in state.get("workers", {}).get(0, {}):
            return state
        progress = saved.progress
        is_before = progress.dataset.before_epoch is not None and not progress.handed.done
        dataset_state = progress.dataset.before_epoch if is_before else own_state(view.dataset)
        return state if dataset_state is None else {**state, "dataset": dataset_state}

    def _saved(self, view: LoaderView, num_workers: int, keeps_seed: bool) -> SavedEpoch:
        progress, is_begun = self._progress, True
        if progress is None or progress.is_finished:
            progress, is_begun = self._new_progress(view, keeps_seed), False
            start = start_state(view)
            progress.seeds.begin_draw(start if self._later is None else {**start, "global": self._later})
        elif not progress.seeds.is_drawn:
            # Other code may still draw random numbers before the first batch, with which the order is drawn.
            seeds = replace(progress.seeds, start=start_state(view), draws_base=False)
            progress, is_begun = replace(progress, seeds=seeds), False
        users_state = global_checksum() if self._later is None else ANOTHER_STATE
        keeps = self._keeps_seed
        if keeps is None:
            keeps = bool(num_workers and view.explicit.get("persistent_workers"))
        return SavedEpoch(progress, is_begun, users_state, keeps)

    def load_state_dict(self, view: LoaderView, num_workers: int, state: State) -> None:
        """Make the next epoch the one of a state: see `DataLoader.load_state_dict`."""
        self._loaded = SavedEpoch.from_state_dict(state, self._settings(view, num_workers))
        # Not later, when iteration begins: a call of `set_epoch` in between is then known to be the user's.
        set_sampler_epochs(view, self._loaded.progress.seeds.start)

    def worker_seeds(self) -> torch.Generator | None:
        """Return the source of the latest epoch's worker seeds, if it is not the loader's generator."""
        assert self._progress is not None
        seed = self._seed
        if seed is None:
            if self._progress.seeds.draws_base:
                return None
            # The seeds have been drawn already, so a new iterator must leave the generator alone.
            seed = self._progress.seeds.base or 0
        return torch.Generator().manual_seed(derived_seed(seed, self._progress.epoch, WORKERS))

    def _resumed(self, view: LoaderView) -> SavedEpoch | None:
        """Return the loaded state, unless `set_epoch` has named another epoch than the one it continues."""
        loaded = self._loaded
        if loaded is None or not loaded.is_begun:
            return loaded
        if (change := changed_epoch(view, loaded.progress.seeds.start)) is None:
            return loaded
        saved, epoch = change
        if _has_batches_left(view, loaded.progress):
            warnings.warn(
                f"set_epoch({epoch}) was called after the state of an unfinished epoch {saved} was loaded: "
                f"epoch {epoch} begins at its start, and the rest of epoch {saved} is left out; to continue "
                f"it, call set_epoch({saved}), or do not call set_epoch before the first iteration",
                stacklevel=5,
            )
        self._loaded = self._progress = self._later = None
        self._count = loaded.progress.epoch + 1
        return None

    def _new_progress(self, view: LoaderView, keeps_seed: bool, resumed: Progress | None = None) -> Progress:
        earlier = resumed or self._progress
        # An iterator draws the workers' seeds when it is created; a persistent one is created once.
        draws_base, base, workers, is_restored = True, None, {}, False
        if resumed is not None:
            draws_base, base = resumed.seeds.draws_base, resumed.seeds.base
            workers, is_restored = resumed.dataset.workers, True
        elif earlier is not None:
            workers = earlier.dataset.ends
            is_restored = earlier.dataset.workers.get(0, {}).get("has_ended", False)
            if keeps_seed if self._keeps_seed is None else self._keeps_seed:
                draws_base, base = False, earlier.seeds.base
        rank = 0
        if self._seed is None:
            # After a resume, later epochs too are drawn from the states of the rank that saved.
            rank = rank_of(view) if earlier is None else earlier.seeds.rank
        seeds = EpochSeeds({}, draws_base=draws_base, base=base, rank=rank)
        before = own_state(view.dataset) if view.is_iterable else None
        states = DatasetProgress(workers=dict(workers), before_epoch=before, is_restored=is_restored)
        return Progress(self._count, seeds, dataset=states)

    def _settings(self, view: LoaderView, num_workers: int) -> State:
        """Return the settings that a loader must share to resume from this one's state."""
        samples = None
        # The dataset's `__len__` may never have been called, and may raise anything.
        with contextlib.suppress(Exception):
            samples = len(view.dataset)
        settings = {
            "seed": self._seed,
            "sampler": type(view.sampler).__name__,
            "samples": samples,
            "num_workers": num_workers,
        }
        if (step_size := _step_size(view)) is not None:
            return {**settings, "step_size": step_size}
        ranks = ranks_of(view)
        return {
            **settings,
            "num_replicas": None if ranks is None else ranks[0],
            "batch_size": view.batch_size,
            "batches": view.batches,
        }


def _step_size(view: LoaderView) -> int | None:
    """Return the samples of all ranks in a step of batches from a ShardedSampler; None for other samplers.

    Raises:
        OptionError: Batches are not in proportion to the weights, so ranks would differ in steps.
    """
    sampler, batches = view.sample_sampler, view.index_sampler
    if not isinstance(sampler, ShardedSampler) or sampler is batches:
        return None
    return sampler.step_size(batches.batch_size)


def _has_batches_left(view: LoaderView, loaded: Progress) -> bool:
    """Return whether the epoch of a loaded state goes on; True if its length is unknown."""
    with contextlib.suppress(Exception):
        batches = len(view.index_sampler)
        if (step_size := _step_size(view)) is None:
            return loaded.handed.first < batches
        start = loaded.seeds.start
        position = start["samplers"][sharded_name(start)]["state"]["position"]
        samples = len(view.dataset)
        return bool(position + loaded.handed.first * step_size < min(samples, batches * step_size))
    return True
