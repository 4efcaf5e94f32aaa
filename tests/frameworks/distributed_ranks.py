"""Loads epochs as one of two ranks.

    python -m tests.frameworks.distributed_ranks RANK FOLDER

Writes FOLDER/RANK.json.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from typing import Any

import torch
import torch.distributed
import torch.utils.data
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import fastload
from tests.frameworks.batches import write
from tests.loader.datasets import Draws

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


def trained(sampler: fastload.ShardedSampler, batch_size: int, wrap: Any) -> list[float]:
    """The weights of a model after an epoch, with a step of the ranks' samples together."""
    torch.manual_seed(0)
    model = wrap(torch.nn.Linear(1, 4).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    numbers = torch.arange(37, dtype=torch.float64)[:, None] / 37
    loader = fastload.DataLoader(numbers, batch_size, sampler=sampler, num_workers=1)
    with Join([model]) if wrap is DistributedDataParallel else contextlib.nullcontext():
        for step, batch in enumerate(loader):
            loss = (model(batch) - batch).square().mean() * sampler.loss_scale(batch_size, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [number for each in model.parameters() for number in each.flatten().tolist()]


def weighted(rank: int) -> list[float]:
    """The weights after an epoch of which rank 1 gets two thirds."""
    sampler = fastload.ShardedSampler(range(37), weights=(1, 2), seed=3, ends="exact")
    return trained(sampler, (4, 8)[rank], DistributedDataParallel)


def states(rank: int) -> dict[str, Any]:
    """The samples of this rank's first batches, and a file with the state after them."""
    loader = fastload.DataLoader(range(37), 4, shuffle=True, seed=2, num_workers=1, sharded=True)
    seen = [batch.tolist() for batch in itertools.islice(loader, 2)]
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    return {"seen": seen, "state": file.getvalue().hex()}


def main(rank: int, folder: str) -> None:
    """Writes what came from torch's class, from fastload's, and after a resume in the second epoch."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    drawing = fastload.DataLoader(Draws(8), 4, seed=0, num_workers=1)
    seen = {
        "torch": epochs(torch.utils.data.DataLoader),
        "fastload": epochs(fastload.DataLoader),
        "resumed": resumed(epoch=1, batches=2),
        "weighted": weighted(rank),
        "sharded": states(rank),
        "draws": list(itertools.chain.from_iterable(batch.flatten().tolist() for batch in drawing)),
    }
    write(f"{folder}/{rank}.json", seen)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
