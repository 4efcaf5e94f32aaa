"""Trains as one of several gloo ranks, with checkpoints, until the epoch ends or a rank is killed.

    python -m tests.frameworks.killed_ranks RANK RANKS FOLDER

Continues from FOLDER/checkpoint.pt if it exists. Every step is a line of FOLDER/RANKS-RANK.txt: the number of
the step in this run, and this rank's samples.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed

import fastload

SAMPLES, STEPS_BETWEEN_CHECKPOINTS = 301, 5


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous-{ranks}", rank=rank, world_size=ranks
    )
    sampler = fastload.ShardedSampler(range(SAMPLES), seed=6, ends="exact")
    loader = fastload.DataLoader(range(SAMPLES), 2, sampler=sampler, num_workers=1)
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        loader.load_state_dict(torch.load(checkpoint, weights_only=True)["loader"])
    batches = iter(loader)
    with open(folder / f"{ranks}-{rank}.txt", "w", buffering=1) as file:
        for step in range(SAMPLES):
            batch = next(batches, None)
            # Before the others can know of this step, and save it.
            file.write(f"{step} {[] if batch is None else batch.tolist()}\n")
            # In place of gradients. A dead rank's connections are closed, which ends the others.
            trained = torch.tensor(0 if batch is None else len(batch))
            torch.distributed.all_reduce(trained)
            if not trained:
                break
            if step % STEPS_BETWEEN_CHECKPOINTS == 0 and rank == 0:
                state = {"loader": loader.state_dict(), "steps": step + 1}
                torch.save(state, folder / "partial.pt")
                os.replace(folder / "partial.pt", checkpoint)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
