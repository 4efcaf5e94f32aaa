"""Loads epochs of a small dataset with Ultralytics' own dataset and loader.

    python -m tests.frameworks.ultralytics_epochs KIND FOLDER RESULT

KIND: whose class stands in `torch.utils.data.dataloader`, "torch" or "fastload". FOLDER: has images/ and
labels/. RESULT: the JSON file to write.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.batches import digests, replace_torchs_class, seed_all, write


def main(kind: str, folder: str, result: str) -> None:
    """Writes what came in three epochs, and after a reset between epochs and one within."""
    replace_torchs_class(kind)
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_dataloader, build_yolo_dataset

    seed_all(0)
    options = get_cfg(overrides={"imgsz": 64})
    data = {"path": folder, "names": {0: "a", 1: "b", 2: "c"}, "nc": 3, "channels": 3}
    dataset = build_yolo_dataset(options, str(Path(folder, "images")), 4, data)
    loader = build_dataloader(dataset, batch=4, workers=2)
    bases = [f"{base.__module__}.{base.__qualname__}" for base in type(loader).__mro__]
    seen: dict[str, Any] = {"bases": bases, "workers": loader.num_workers}
    seen["epochs"] = [digests(loader) for _ in range(3)]
    # As its trainer does for the last epochs.
    dataset.close_mosaic(options)
    loader.reset()
    seen["workers after reset"] = len(multiprocessing.active_children())
    seen["reset between epochs"] = [digests(loader) for _ in range(2)]
    next(iter(loader))
    loader.reset()
    epochs = [list(loader) for _ in range(2)]
    seen["reset within an epoch"] = [digests(epoch) for epoch in epochs]
    seen["images after it"] = [
        [Path(f).stem for batch in epoch for f in batch["im_file"]] for epoch in epochs
    ]
    # Its `__del__` ends the workers that it finds in `iterator._workers`.
    workers = loader.iterator._workers
    seen["workers at the end"] = len(workers)
    del loader, epochs
    seen["workers after del"] = sum(worker.is_alive() for worker in workers)
    write(result, seen)


if __name__ == "__main__":
    main(*sys.argv[1:])
