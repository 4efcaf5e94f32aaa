"""An epoch saved on two ranks by torch, Accelerate or Lightning continues on one and on four."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch.distributed

from tests.frameworks.batches import read
from tests.frameworks.checkpointing_ranks import BATCHES, SAMPLES


@pytest.fixture(scope="module")
def run_ranks(run_programs, tmp_path_factory):
    """Gives `run_ranks(stage, ranks, ways)`: what ranks were given in each epoch, by way."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("needs a torch that was built with gloo")
    folder: Path = tmp_path_factory.mktemp("checkpoints")

    def run(stage: str, ranks: int, ways: tuple[str, ...]) -> dict[str, list[list[int]]]:
        program = "checkpointing_ranks"
        run_programs(*((program, stage, rank, ranks, folder, *ways) for rank in range(ranks)))
        found = [read(folder / f"{stage}-{ranks}-{rank}.json") for rank in range(ranks)]
        return {
            way: [list(itertools.chain(*parts)) for parts in zip(*(each[way] for each in found), strict=True)]
            for way in ways
        }

    return run


@pytest.fixture(scope="module")
def saved(run_ranks):
    """Gives `saved(ways)`: the samples of two ranks before they saved a checkpoint, by way."""
    done: dict[str, list[int]] = {}

    def save(ways: tuple[str, ...]) -> dict[str, list[int]]:
        missing = tuple(way for way in ways if way not in done)
        if missing:
            done.update({way: seen for way, [seen] in run_ranks("save", 2, missing).items()})
        return done

    return save


@pytest.mark.parametrize(
    ("ranks", "ways"),
    [
        (1, ("torch",)),
        pytest.param(1, ("accelerate",), marks=pytest.mark.frameworks("accelerate")),
        pytest.param(4, ("torch",), marks=pytest.mark.soak),
        # Its import alone takes seconds in every rank.
        pytest.param(1, ("lightning",), marks=[pytest.mark.soak, pytest.mark.frameworks("lightning")]),
        pytest.param(
            4,
            ("accelerate", "lightning"),
            marks=[pytest.mark.soak, pytest.mark.frameworks("accelerate", "lightning")],
        ),
    ],
)
def test_other_ranks_get_exactly_the_samples_that_were_left(run_ranks, saved, ranks, ways):
    before, after = saved(ways), run_ranks("resume", ranks, ways)
    for way in ways:
        rest, following = after[way]
        assert len(before[way]) == 2 * 2 * BATCHES, "batches of two on two ranks"
        assert sorted(before[way] + rest) == list(range(SAMPLES)), way
        assert sorted(following) == list(range(SAMPLES)), way
