"""LitData's side of bench_remote.py.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
from litdata.streaming import downloader
from load_litdata import VERSIONS, Crops, loader_of, write_chunks
from remote_rank import Job, serve


def write(job: Job, folder: Path) -> None:
    """Write the chunks."""
    write_chunks(job["source"], folder, max(1, job["workers"]), job["shard_size"])


def make_loader(job: Job) -> Any:
    """Make dataset and loader."""
    cv2.setNumThreads(0)
    # Its obstore refuses plain HTTP, and there is no public option to allow it.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
    return loader_of(job, Crops(job, job["url"], cache_dir=job["cache"]))


if __name__ == "__main__":
    serve(write, make_loader, VERSIONS)
