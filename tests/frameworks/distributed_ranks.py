"""Loads epochs as one of two ranks.

    python -m tests.frameworks.distributed_ranks RANK FOLDER

Writes FOLDER/RANK.json.
"""

from __future__ import annotations

import io
import itertools
import sys
from typing import Any

import torch
import torch.distributed
import torch.utils.data
from torch.utils.data import DistributedSampler

import fastload
from tests.frameworks.batches import write

EPOCHS = 3


def make(kind: type) -> tuple[DistributedSampler, Any]:
    numbers = range(37)
    sampler = DistributedSampler(numbers)
    return sampler, kind(numbers, batch_size=4, sampler=sampler, num_workers=1)


def epochs(kind: type) -> list[list[list[int]]]:
    """Every batch of each epoch."""
    sampler, loader = make(kind)
    seen = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        seen.append([batch.tolist() for batch in loader])
    return seen


def resumed(epoch: int, batches: int) -> list[list[list[int]]]:
    """Every batch of what is left of an epoch after some batches, and of the next one, by a new loader."""
    sampler, loader = make(fastload.DataLoader)
    sampler.set_epoch(epoch)
    for _ in itertools.islice(loader, batches):
        pass
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)

    sampler, loader = make(fastload.DataLoader)
    loader.load_state_dict(torch.load(file, weights_only=True))
    rest = [batch.tolist() for batch in loader]
    sampler.set_epoch(epoch + 1)
    return [rest, [batch.tolist() for batch in loader]]


def main(rank: int, folder: str) -> None:
    """Writes what came from torch's class, from fastload's, and after a resume in the second epoch."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    seen = {
        "torch": epochs(torch.utils.data.DataLoader),
        "fastload": epochs(fastload.DataLoader),
        "resumed": resumed(epoch=1, batches=2),
    }
    write(f"{folder}/{rank}.json", seen)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
