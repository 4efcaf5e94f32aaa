"""YOLOv5's way of keeping workers: a subclass whose one iterator never ends, over a sampler that repeats."""

from __future__ import annotations

import gc
import multiprocessing
from typing import Any

import pytest
import torch.utils.data

import fastload
from tests.commands import run_python
from tests.frameworks.batches import seed_all
from tests.frameworks.programs import ROOT
from tests.loader.datasets import Random, assert_same


class Repeating:
    """A batch sampler, over and over."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        while True:
            yield from iter(self.sampler)


def endless(base: type) -> type:
    """The subclass of torch's class, or of another in its place."""

    class InfiniteDataLoader(base):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            # torch forbids plain assignment.
            object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.sampler)

        def __iter__(self) -> Any:
            for _ in range(len(self)):
                yield next(self.iterator)

    return InfiniteDataLoader


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_of_an_endless_iterator_are_torchs(workers):
    results = []
    for base in (torch.utils.data.DataLoader, fastload.DataLoader):
        seed_all(3)
        generator = torch.Generator().manual_seed(6)
        loader = endless(base)(
            Random(20, 50), batch_size=6, shuffle=True, num_workers=workers, generator=generator
        )
        results.append([list(loader) for _ in range(4)])
    assert_same(*results)


def test_workers_end_with_the_loader():
    loader = endless(fastload.DataLoader)(Random(20, 50), batch_size=6, num_workers=2)
    list(loader)
    workers = loader.iterator._workers
    assert [worker.is_alive() for worker in workers] == [True, True]
    del loader
    gc.collect()
    assert not multiprocessing.active_children()


PROGRAM = """
import fastload
from tests.frameworks.test_yolov5 import endless
loader = endless(fastload.DataLoader)(range(20), batch_size=6, num_workers=2)
list(loader)
"""


def test_program_that_ends_with_the_loader_alive_prints_nothing():
    done = run_python("-c", PROGRAM, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
