"""Loads an epoch as one of four gloo ranks: two replicas of two tensor-parallel ranks.

    python -m tests.frameworks.mesh_ranks RANK FOLDER

Writes FOLDER/RANK.json.
"""

from __future__ import annotations

import sys

import torch.distributed
from torch.distributed.device_mesh import init_device_mesh

import fastload
from tests.frameworks.batches import write


def main(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=4
    )
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    sampler = fastload.ShardedSampler(range(40), seed=1, mesh=mesh["dp"])
    loader = fastload.DataLoader(range(40), 4, sampler=sampler, num_workers=1)
    write(f"{folder}/{rank}.json", [batch.tolist() for batch in loader])
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
