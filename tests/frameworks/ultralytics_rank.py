"""Loads one rank's epoch of Ultralytics' dataset through fastload, with its images in memory.

python -m tests.frameworks.ultralytics_rank RANK FOLDER RESULT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed

import fastload
import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.batches import digests, write

RANKS = 2


def main(rank: str, folder: str, result: str) -> None:
    """Writes the rank's files, its batches, and the memory in which its images are."""
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
    fastload.ultralytics.patch()
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_dataloader, build_yolo_dataset
    from ultralytics.utils.torch_utils import init_seeds

    store = torch.distributed.FileStore(str(Path(folder, "ranks")), RANKS)
    torch.distributed.init_process_group("gloo", store=store, rank=int(rank), world_size=RANKS)
    init_seeds(1 + int(rank))
    options = get_cfg(overrides={"imgsz": 64})
    options.cache = "ram"
    data = {"path": folder, "names": {0: "a", 1: "b", 2: "c"}, "nc": 3, "channels": 3}
    dataset = build_yolo_dataset(options, str(Path(folder, "images")), 4, data)
    loader = build_dataloader(dataset, batch=4, workers=1, rank=int(rank))
    epochs = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        epochs.append(list(loader))
    memory = os.fstat(dataset.ims._store.descriptor)
    seen = {
        "files": [[Path(file).stem for batch in epoch for file in batch["im_file"]] for epoch in epochs],
        "batches": [digests(epoch) for epoch in epochs],
        "memory": [memory.st_dev, memory.st_ino],
        "in memory": sum(map(dataset.ims.has, range(len(dataset)))),
    }
    torch.distributed.barrier()
    loader.close()
    torch.distributed.destroy_process_group()
    write(result, seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
