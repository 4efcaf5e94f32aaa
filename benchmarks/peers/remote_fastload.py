"""fastload's side of bench_remote.py: a packed dataset, shuffled within windows of shards, or fully."""

from __future__ import annotations

from pathlib import Path

import torch.utils.data
from remote_rank import Job, serve

import fastload
import fastload.transforms as T
from fastload import Cache, DataLoader, PackedDataset, ShardedSampler, pack


def write(job: Job, folder: Path) -> None:
    """Pack the photos."""
    pack(job["source"], folder, encode=job["store"], shard_size=job["shard_size"])


def make_loader(job: Job) -> torch.utils.data.DataLoader[object]:
    """Make dataset and loader."""
    crop = T.RandomResizedCrop(job["size"], antialias=False)
    dataset = PackedDataset(
        job["url"],
        transform=T.Compose([crop, T.RandomHorizontalFlip()]),
        cache=Cache("disk", folder=job["cache"]),
    )
    return DataLoader(
        dataset,
        batch_size=job["batch_size"],
        sampler=ShardedSampler(dataset, window=job["window"]),
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        drop_last=True,
    )


if __name__ == "__main__":
    serve(write, make_loader, {"fastload": fastload.__version__})
