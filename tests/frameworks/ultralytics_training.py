"""Trains a small YOLO for three epochs, interrupted after the first; `fastload run` runs it too.

    python tests/frameworks/ultralytics_training.py DATA RESULT

DATA: a yaml file or a packed dataset. RESULT: the JSON file to write: losses, and the images validated.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

OPERATORS = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


class Interrupted(Exception):
    """Ends the first training."""


def main(data: str, result: str) -> None:
    from ultralytics import YOLO

    noted: list[Any] = []

    def model_of(file: str) -> Any:
        model = YOLO(file)
        model.add_callback("on_pretrain_routine_start", use_a_worker)
        model.add_callback("on_train_batch_end", lambda trainer: noted.append(trainer.loss.item()))
        model.add_callback("on_train_batch_end", lambda trainer: noted.append(trainer.batch_shape))
        model.add_callback("on_val_end", lambda validator: noted.append(validator.seen))
        return model

    folder = Path(result).parent
    model = model_of("yolo11n.yaml")
    model.add_callback("on_model_save", interrupt)
    with contextlib.suppress(Interrupted):
        # With a rotation, images are equal bit for bit.
        model.train(
            data=data,
            epochs=3,
            close_mosaic=1,
            imgsz=64,
            multi_scale=0.5,
            batch=8,
            degrees=5.0,
            device="cpu",
            plots=False,
            conf=0.9,  # nothing is found: beside a CPU-only torch, torchvision has no nms
            optimizer="SGD",
            warmup_epochs=0,
            project=str(folder),
            name="trained",
        )
    model_of(str(folder / "trained" / "weights" / "last.pt")).train(resume=True)
    Path(result).write_text(json.dumps(noted))


def use_a_worker(trainer: Any) -> None:
    """Sets the number of workers; without a GPU, Ultralytics uses none."""
    trainer.args.workers = 1
    preprocess = trainer.preprocess_batch

    def note_shape(batch: Any) -> Any:
        batch = preprocess(batch)
        trainer.batch_shape = list(batch["img"].shape)
        return batch

    trainer.preprocess_batch = note_shape


def interrupt(trainer: Any) -> None:
    """Ends a training run as an error would."""
    trainer.train_loader.close()
    trainer.test_loader.close()
    raise Interrupted


if __name__ == "__main__":
    main(*sys.argv[1:])
