"""Loads a rank's epochs of Ultralytics' dataset, plain, through fastload, and with its images in memory.

python -m tests.frameworks.ultralytics_rank RANK FOLDER RESULT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed

import fastload
import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.batches import digests, write

RANKS = 2


def main(rank: str, folder: str, result: str) -> None:
    """Writes the rank's files, its batches, Ultralytics' own, and the memory in which images are."""
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
    store = torch.distributed.FileStore(str(Path(folder, "ranks")), RANKS)
    torch.distributed.init_process_group("gloo", store=store, rank=int(rank), world_size=RANKS)
    theirs, _ = epochs_of(folder, int(rank), None)
    fastload.ultralytics.patch()
    ours, _ = epochs_of(folder, int(rank), None)
    in_memory, dataset = epochs_of(folder, int(rank), "ram")
    memory = os.fstat(dataset.ims.store.descriptor)
    seen = {
        "files": [[Path(file).stem for batch in epoch for file in batch["im_file"]] for epoch in in_memory],
        "batches": [digests(epoch) for epoch in ours],
        "their batches": [digests(epoch) for epoch in theirs],
        "memory": [memory.st_dev, memory.st_ino],
        "in memory": sum(map(dataset.ims.store.has, range(len(dataset)))),
    }
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    write(result, seen)


def epochs_of(folder: str, rank: int, cache: str | None) -> tuple[list[list[Any]], Any]:
    """Loads two epochs of a rank; returns them and the dataset."""
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_dataloader, build_yolo_dataset
    from ultralytics.utils.torch_utils import init_seeds

    init_seeds(1 + rank)
    # With a rotation, images are equal bit for bit.
    options = get_cfg(overrides={"imgsz": 64, "degrees": 5.0})
    options.cache = cache
    data = {"path": folder, "names": {0: "a", 1: "b", 2: "c"}, "nc": 3, "channels": 3}
    dataset = build_yolo_dataset(options, str(Path(folder, "images")), 4, data)
    torch.distributed.barrier()  # both have read the labels, whose cache they write
    loader = build_dataloader(dataset, batch=4, workers=1, rank=rank)
    epochs = []
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        epochs.append(list(loader))
    loader.close()
    return epochs, dataset


if __name__ == "__main__":
    main(*sys.argv[1:])
