"""What an iterator begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from fastload.loader.clock import StepClock
from fastload.loader.resume import Progress


class Setting(NamedTuple):
    """How batches are loaded: the parameters of torch's DataLoader that change speed alone.

    Attributes:
        num_workers: Worker processes; 0: the training process loads.
        prefetch_factor: Batches asked of each worker in advance; None without workers.
        pin_memory: Whether batches are copied to page-locked memory.
        persistent_workers: Whether workers live on from epoch to epoch.
    """

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool = False
    persistent_workers: bool = False


class Start(NamedTuple):
    """What an iterator begins with.

    Attributes:
        progress: Where in the epoch; kept up to date.
        device: Where batches are moved to, if anywhere.
        seeds: What the workers' seeds are drawn from, where it is not the loader's generator.
        clock: Stops the time of waits and steps.
        setting: How batches are loaded.
        order: The rest of the epoch's order, where another iterator has begun it.
        reads: Whether samples are read; else nothing is asked of the disk in advance.
        seeds_batches: Whether each batch draws numbers of its own, wherever it is made.
        watch: Called with a WorkersIterator after its first batch, and then when as many batches have been
            handed out as it returned; None: never.
    """

    progress: Progress
    device: torch.device | None
    seeds: torch.Generator | None
    clock: StepClock
    setting: Setting
    order: Iterator[Any] | None = None
    reads: bool = True
    seeds_batches: bool = False
    watch: Callable[[Any], int] | None = None
