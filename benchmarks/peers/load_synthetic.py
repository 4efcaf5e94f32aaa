"""Batches that are on the device already: the rate of the training step alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from epochs import Loading, Stored, serve


def prepare(job: Mapping[str, Any]) -> Loading:
    """Make one batch of noise, which is used again and again."""
    size, count = (job["size"],) * 2, job["batch_size"]
    images = torch.randint(0, 256, (count, 3, *size), dtype=torch.uint8).to(
        job["device"], memory_format=torch.channels_last
    )
    batch = images, torch.arange(count, device=job["device"])
    return Loading(lambda: itertools.repeat(batch, job["images"] // count), Stored(Path(job["source"])), {})


if __name__ == "__main__":
    serve(prepare)
