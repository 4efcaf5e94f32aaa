"""Does the code for CUDA devices work on this one, and what does it gain?

Question: do batches on a device, a cache there, the readings of GPUs and the trials of models work on a
real GPU?

Method. All tests marked `gpu` run. Then 20,000 images of 64×64, packed raw, are loaded in turns, five times
each, by torch's DataLoader with pinned memory, copied by the loop; by `device="cuda"`; and by
`cache="device"`. A turn is one epoch, and ends when the device has finished its work.

Reading it. The record lists the tests that passed, and the device; without it README and docs say that
nothing of this has run on a GPU. It is written only if every test has passed and none was skipped.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
from _harness import ROOT, identified, options_of, progress, timed, work_folder, write_json

import fastload
import fastload.transforms as T

IMAGES = 20_000
SIDE = 64
BATCH_SIZE = 256
WORKERS = 2


class Made(torch.utils.data.Dataset[tuple[Any, int]]):
    """Images of noise."""

    def __init__(self, count: int) -> None:
        self._pixels = np.random.default_rng(0).integers(0, 255, (count, SIDE, SIDE, 3), np.uint8)

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._pixels[index], index % 10


def main() -> None:
    options = options_of(__doc__)
    if not torch.cuda.is_available():
        sys.exit("check_gpu.py: there is no CUDA device here: nothing was run, and nothing is recorded")
    tests = run_tests()
    if tests["failed"] or tests["skipped"] or not tests["passed"]:
        sys.exit("check_gpu.py: all tests must pass and none be skipped: nothing is recorded")
    with work_folder(options) as folder:
        measured = measure(options, folder)
    for each in measured:
        progress(f"{each['way']}: {each['images_per_s']:,} images/s")
    setting = {
        "images": IMAGES,
        "side": SIDE,
        "batch_size": BATCH_SIZE,
        "workers": WORKERS,
        "runs": options.runs,
    }
    record = identified("gpu", question(), setting, {"CUDA": str(torch.version.cuda)})
    write_json({**record, "gpu": device(), "tests": tests, "measured": measured}, options)


def question() -> str:
    """Return the first line of the docstring."""
    return (__doc__ or "").splitlines()[0]


def run_tests() -> dict[str, list[str]]:
    """Run the tests that need a GPU and return their names by outcome."""
    ended: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
    with tempfile.TemporaryDirectory(prefix="fastload-gpu-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={report}"]
        code = subprocess.run(command, cwd=ROOT).returncode
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            ended[_ending(case)].append(f"{case.get('classname')}.{case.get('name')}")
    if code and not ended["failed"]:
        ended["failed"].append(f"pytest ended with {code}")
    return ended


def _ending(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if case.find("skipped") is None else "skipped"


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure the images per second of each loader."""
    fastload.pack(Made(IMAGES), folder / "made.fl", encode="raw", workers=1)
    flip, common = T.RandomHorizontalFlip(), {"batch_size": BATCH_SIZE, "shuffle": True}
    plain = fastload.PackedDataset(folder / "made.fl", transform=flip)
    workers = {"num_workers": WORKERS, "persistent_workers": True}
    loaders: dict[str, tuple[Any, bool]] = {
        "torch's DataLoader, pin_memory and .to()": (
            torch.utils.data.DataLoader(plain, pin_memory=True, **workers, **common),
            True,
        ),
        'device="cuda"': (fastload.DataLoader(plain, device="cuda", **workers, **common), False),
        'cache="device"': (
            fastload.DataLoader(
                fastload.PackedDataset(folder / "made.fl", transform=flip),
                device="cuda",
                cache="device",
                num_workers=0,
                **common,
            ),
            False,
        ),
    }
    turns: dict[str, list[float]] = {name: [] for name in loaders}
    for turn in range(options.runs + 1):
        for name, (loader, is_copied) in loaders.items():
            seconds = timed(_epoch(loader, is_copied))
            if turn:  # the first starts workers and fills the cache
                turns[name].append(seconds)
    return [
        {"way": name, "seconds": seconds, "images_per_s": round(IMAGES / statistics.median(seconds))}
        for name, seconds in turns.items()
    ]


def _epoch(loader: Iterable[Any], is_copied: bool) -> Callable[[], None]:
    def epoch() -> None:
        total = torch.zeros((), device="cuda")
        for images, _ in loader:
            total += (images.to("cuda", non_blocking=True) if is_copied else images).float().mean()
        torch.cuda.synchronize()

    return epoch


def device() -> dict[str, Any]:
    """Return the GPU's properties and its driver."""
    properties = torch.cuda.get_device_properties(0)
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "count": torch.cuda.device_count(),
        "driver": driver[0],
    }


if __name__ == "__main__":
    main()
