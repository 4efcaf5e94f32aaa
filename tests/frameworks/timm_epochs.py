"""Loads epochs with timm's loader that keeps its workers, a subclass of torch's class from its import on.

    python -m tests.frameworks.timm_epochs KIND FOLDER RESULT

KIND: whose class stands in `torch.utils.data`, "torch" or "fastload". FOLDER: has class folders of images.
RESULT: the JSON file to write.
"""

from __future__ import annotations

import sys

import torch

import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.batches import digests, replace_torchs_class, seed_all, write


def main(kind: str, folder: str, result: str) -> None:
    """Writes what came in three epochs, with timm's prefetcher and without."""
    replace_torchs_class(kind)
    import timm.data

    seen = {}
    for use_prefetcher in (False, True):
        seed_all(0)
        loader = timm.data.create_loader(
            timm.data.create_dataset("", root=folder),
            input_size=(3, 32, 32),
            batch_size=4,
            is_training=True,
            num_workers=2,
            use_prefetcher=use_prefetcher,
            use_multi_epochs_loader=True,
            device=torch.device("cpu"),
        )
        seen[f"use_prefetcher={use_prefetcher}"] = [digests(loader) for _ in range(3)]
    seen["bases"] = [base.__module__ for base in timm.data.loader.MultiEpochsDataLoader.__mro__]
    write(result, seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
