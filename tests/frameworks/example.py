"""Runs a script of examples/ as Python would.

    python -m tests.frameworks.example FOLDER [NAME=VALUE …] SCRIPT [ARGUMENT …]

FOLDER: where the script runs, and leaves what it writes. NAME=VALUE: variables of its environment.
"""

from __future__ import annotations

import os
import runpy
import sys

import torch

import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks.programs import ROOT


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Stands in for torchvision's operator: indices of boxes that overlap no better box by more."""
    from torchvision.ops import box_iou

    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        if not kept or box_iou(boxes[[index]], boxes[kept]).max() <= iou_threshold:
            kept.append(index)
    return torch.tensor(kept, dtype=torch.int64)


def main(folder: str, *words: str) -> None:
    """Runs the script with one thread, because the tests share the machine."""
    while "=" in words[0]:
        name, _, value = words[0].partition("=")
        os.environ[name] = value
        words = words[1:]
    import torchvision.extension

    if not torchvision.extension._has_ops():
        torchvision.ops.nms = _nms
    torch.set_num_threads(1)
    os.chdir(folder)
    sys.argv = [str(ROOT / "examples" / words[0]), *words[1:]]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
