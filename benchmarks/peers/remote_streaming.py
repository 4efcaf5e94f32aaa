"""MosaicML Streaming's side of bench_remote.py.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
from load_streaming import VERSIONS, Crops, loader_of, write_shards
from remote_rank import Job, serve


def write(job: Job, folder: Path) -> None:
    """Write the shards."""
    write_shards(job["source"], folder, job["shard_size"].lower())


def make_loader(job: Job) -> Any:
    """Make dataset and loader."""
    cv2.setNumThreads(0)
    return loader_of(job, Crops(job, remote=job["url"], local=job["cache"]))


if __name__ == "__main__":
    serve(write, make_loader, VERSIONS)
