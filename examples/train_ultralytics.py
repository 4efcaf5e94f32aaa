"""A YOLO trained by Ultralytics, its images made by fastload.

python train_ultralytics.py data.yaml
"""

import argparse

from ultralytics import YOLO

import fastload.ultralytics


def main(data: str, size: int, epochs: int) -> None:
    """Train, and print the mean average precision on the validation images."""
    fastload.ultralytics.patch()
    metrics = YOLO("yolo11n.yaml").train(data=data, imgsz=size, epochs=epochs)
    print(f"mAP50 {metrics.box.map50:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a data.yaml, or a dataset that fastload has packed")
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--epochs", type=int, default=1)
    main(**vars(parser.parse_args()))
