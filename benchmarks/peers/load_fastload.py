"""fastload's side of bench_load.py: a process like its peers, in fastload's own environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from epochs import Loading, Stored, serve, written
from load_torch import image_folder

import fastload
import fastload.transforms as T
from fastload.images import region


def prepare(job: Mapping[str, Any]) -> Loading:
    """Pack, and make dataset and loader."""
    if not job["turbojpeg"]:
        vars(region)["find_turbojpeg"] = lambda: None  # before workers are forked
    transform = T.Compose(_steps(job))
    stored = Stored(Path(job["source"]))
    if job["store"] == "compiled":
        dataset: Any = fastload.compile(image_folder(job))
    elif job["store"] == "folder":
        dataset = fastload.FolderDataset(stored.path, transform=transform)
    else:
        stored = packed(job)
        dataset = fastload.PackedDataset(stored.path, transform=transform)
    on_device = {"device": job["device"]} if job["device"] not in (None, "cpu") else {}
    loader = fastload.DataLoader(
        dataset,
        batch_size=job["batch_size"],
        shuffle=True,
        num_workers=job["workers"],
        persistent_workers=job["workers"] > 0,
        drop_last=True,
        **on_device,
    )
    return Loading(lambda: loader, stored, {})


def packed(job: Mapping[str, Any]) -> Stored:
    """Return the packed dataset, made on first use."""
    container = job.get("format", "hdf5")
    folder = Path(job["scratch"]) / f"{job['work']}-{job['store']}-{container}.fl"
    command = [sys.executable, "-m", "fastload", "pack", job["source"], str(folder), "--quiet"]
    command += ["--encode", job["store"], "--format", container]
    if job["max_side"]:
        command += ["--max-side", str(job["max_side"])]
    return written(folder, lambda: subprocess.run(command, check=True))


def _steps(job: Mapping[str, Any]) -> list[Any]:
    crop: Any
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
