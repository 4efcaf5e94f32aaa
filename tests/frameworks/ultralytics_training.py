"""Trains a small YOLO for two epochs, the last one without mosaics; `fastload run` runs it too.

    python tests/frameworks/ultralytics_training.py DATA RESULT

DATA: a yaml file or a packed dataset. RESULT: the JSON file to write: losses, and the images validated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

OPERATORS = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def main(data: str, result: str) -> None:
    from ultralytics import YOLO

    losses: list[Any] = []
    model = YOLO("yolo11n.yaml")
    model.add_callback("on_train_batch_end", lambda trainer: losses.append(trainer.loss.item()))
    model.add_callback("on_val_end", lambda validator: losses.append(validator.seen))
    # With a rotation, images are equal bit for bit.
    model.train(
        data=data,
        epochs=2,
        close_mosaic=1,
        imgsz=64,
        batch=8,
        degrees=5.0,
        device="cpu",
        plots=False,
        conf=0.9,  # nothing is found: beside a CPU-only torch, torchvision has no nms
        optimizer="SGD",
        warmup_epochs=0,
        project=str(Path(result).parent),
        name=Path(result).stem,
    )
    Path(result).write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*sys.argv[1:])
