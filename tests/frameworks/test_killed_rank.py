"""A rank killed at a random moment: other ranks continue from the last checkpoint, with exactly its rest."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
import torch.distributed

from tests.commands import start_python, wait_until_gone
from tests.frameworks.killed_ranks import SAMPLES
from tests.frameworks.programs import ROOT, environment

# Each kills one of two ranks at another moment; a step takes about a millisecond.
MOMENTS = [pytest.param(moment, marks=[] if moment < 1 else pytest.mark.soak) for moment in range(20)]


def started(ranks: int, folder: Path) -> list[subprocess.Popen[str]]:
    return [
        start_python(
            *("-m", "tests.frameworks.killed_ranks", rank, ranks, folder),
            cwd=ROOT,
            env=environment(folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for rank in range(ranks)
    ]


def samples(folder: Path, ranks: int, steps: int) -> list[int]:
    """Returns the samples of all ranks' first steps; a line of a killed rank may be incomplete."""
    lines = [
        line.partition(" ")
        for rank in range(ranks)
        for line in (folder / f"{ranks}-{rank}.txt").read_text().splitlines()
    ]
    return [sample for step, _, batch in lines if step and int(step) < steps for sample in json.loads(batch)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_lost_and_nothing_given_twice(tmp_path, moment):
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("needs a torch that was built with gloo")
    draw = random.Random(moment)
    victim, line, after = draw.randrange(2), draw.randrange(60), (1, 4)[moment % 2]
    killed = started(2, tmp_path)
    log = tmp_path / f"2-{victim}.txt"
    while not log.exists() or log.read_text().count("\n") < line:
        assert killed[victim].poll() is None, killed[victim].communicate()[1]
        time.sleep(0.001)
    time.sleep(draw.random() / 500)
    killed[victim].send_signal(signal.SIGKILL)
    for process in killed:
        process.communicate(timeout=60)
        assert process.returncode != 0
        wait_until_gone(process.pid)

    checkpoint = tmp_path / "checkpoint.pt"
    steps = torch.load(checkpoint, weights_only=True)["steps"] if checkpoint.exists() else 0
    done = samples(tmp_path, 2, steps)
    for process in (others := started(after, tmp_path)):
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    for process in others:
        wait_until_gone(process.pid)
    assert sorted(done + samples(tmp_path, after, SAMPLES)) == list(range(SAMPLES))
