"""FFCV's side of bench_pack.py: pack class folders as JPEG of quality 90.

Runs in the environment made by install.py, never in fastload's own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image


class Photos:
    """Pixels and labels of a folder of class folders."""

    def __init__(self, folder: Path, decoder: str) -> None:
        classes = sorted(path for path in folder.iterdir() if path.is_dir())
        self._samples = [
            (str(file), label) for label, path in enumerate(classes) for file in sorted(path.iterdir())
        ]
        self._load = {"PIL": _by_pil, "OpenCV": _by_opencv}[decoder]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[object, int]:
        path, label = self._samples[index]
        return self._load(path), label


def _by_pil(path: str) -> Image.Image:
    """Decode like torchvision's ImageFolder, the source in FFCV's documentation."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def _by_opencv(path: str) -> np.ndarray:
    data = np.fromfile(path, np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)


def _cpu_s() -> float:
    """Return the CPU time of this process and its ended children."""
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("destination")
    parser.add_argument("outcome", type=Path, help="file for the times, as JSON")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--decoder", choices=("PIL", "OpenCV"), required=True)
    options = parser.parse_args()
    cv2.setNumThreads(0)  # one process per CPU, as on the other side
    began, cpu_before = time.perf_counter(), _cpu_s()
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    writer = DatasetWriter(options.destination, fields, num_workers=options.workers)
    writer.from_indexed_dataset(Photos(options.source, options.decoder))
    seconds = time.perf_counter() - began
    for worker in multiprocessing.active_children():
        worker.join()  # so that their time counts
    cpu_s = _cpu_s() - cpu_before
    packages = ("opencv-python-headless", "pillow", "numpy", "numba")
    versions = {"FFCV": version("ffcv")}
    versions |= {f"{package} (FFCV)": version(package) for package in packages}
    options.outcome.write_text(json.dumps({"writer_s": seconds, "cpu_s": cpu_s, "versions": versions}))


if __name__ == "__main__":
    main()
