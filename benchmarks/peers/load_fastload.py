"""fastload's side of bench_load.py, a process like its peers, in fastload's own environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from epochs import Loading, count_samples, serve

import fastload
import fastload.transforms as T


def prepare(job: Mapping[str, Any]) -> Loading:
    """Pack, and make dataset and loader."""
    transform = T.Compose(_steps(job))
    if job["store"] == "folder":
        stored = Path(job["source"])
        dataset: Any = fastload.FolderDataset(stored, transform=transform)
    else:
        stored = packed(job)
        dataset = fastload.PackedDataset(stored, transform=transform)
    loader = fastload.DataLoader(
        dataset,
        batch_size=job["batch_size"],
        shuffle=True,
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        drop_last=True,
    )
    return Loading(lambda: count_samples(loader), stored, {})


def packed(job: Mapping[str, Any]) -> Path:
    """Return the packed dataset, made on first use."""
    folder = Path(job["scratch"]) / f"{job['work']}-{job['store']}.fl"
    if not folder.exists():
        command = [sys.executable, "-m", "fastload", "pack", job["source"], folder, "--quiet"]
        command += ["--encode", job["store"]]
        if job["max_side"]:
            command += ["--max-side", str(job["max_side"])]
        subprocess.run(command, check=True)
    return folder


def _steps(job: Mapping[str, Any]) -> list[Any]:
    if job["work"] == "photos":
        crop = T.RandomResizedCrop(job["size"], antialias=job["antialias"])
    else:
        crop = T.RandomCrop(job["size"], padding=job["padding"])
    steps = [crop, T.RandomHorizontalFlip()]
    if job["normalise"]:
        steps += [T.ToDtype(torch.float32, scale=True), T.Normalize(job["mean"], job["std"])]
    return steps


if __name__ == "__main__":
    serve(prepare)
