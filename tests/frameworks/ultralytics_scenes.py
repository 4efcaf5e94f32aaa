"""Images that Ultralytics' own transforms make, with the parameters that they drew.

    python -m tests.frameworks.ultralytics_scenes RESULT

RESULT: the .npz file to write; names are CASE/WHAT.
"""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import cv2
import numpy as np

import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from tests.frameworks import scene_samples as samples

CASES = {
    "4": {},
    "4 turned": {"degrees": 30.0, "shear": 5.0, "scale": 0.3},
    "4 tilted": {"degrees": 5.0, "perspective": 0.001},
    "4 rotated": {"degrees": 90.0},
}
SEEDS = 4


class Dataset:
    """The members of a dataset that its transforms use."""

    cache = "ram"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.use_obb = kind == "corners"
        self.asked: list[int] = []

    def __len__(self) -> int:
        return samples.COUNT

    def get_image_and_label(self, index: int) -> dict[str, Any]:
        """A sample before its transforms, as YOLODataset gives it."""
        from ultralytics.utils.instance import Instances
        from ultralytics.utils.ops import resample_segments, xyxy2xywh

        self.asked.append(index)
        pixels = cv2.cvtColor(samples.image(index), cv2.COLOR_RGB2BGR)
        height, width = pixels.shape[:2]
        ratio = samples.IMGSZ / max(height, width)
        if ratio != 1:
            size = (int(min(np.ceil(side * ratio), samples.IMGSZ)) for side in (width, height))
            pixels = cv2.resize(pixels, tuple(size), interpolation=cv2.INTER_LINEAR)
        labels, polygons, keypoints = samples.shares(index)
        segments = None
        if self.kind in ("polygons", "corners"):
            points = 100 if self.use_obb else 1000
            segments = np.zeros((0, points, 2), np.float32)
            if len(polygons):
                segments = np.stack(resample_segments(list(polygons), points))
        boxes = xyxy2xywh(samples.boxes(polygons))
        given = keypoints if self.kind == "keypoints" else None
        mask = {}
        if self.kind == "masks":
            classes = samples.mask(index)
            size = pixels.shape[1::-1]
            mask["semantic_mask"] = cv2.resize(classes, size, interpolation=cv2.INTER_NEAREST)
        return {
            **mask,
            "im_file": str(index),
            "ori_shape": (height, width),
            "resized_shape": pixels.shape[:2],
            "img": pixels,
            "cls": labels[:, None].astype(np.float32),
            "instances": Instances(boxes, segments, given, bbox_format="xywh", normalized=True),
        }


def noted(result: dict[str, Any], name: str, labels: dict[str, Any]) -> None:
    """Stores a sample."""
    instances = copy.deepcopy(labels["instances"])  # which later steps change in place
    instances.convert_bbox("xyxy")
    instances.denormalize(*labels["img"].shape[1::-1])
    result[f"{name}/image"] = cv2.cvtColor(labels["img"], cv2.COLOR_BGR2RGB)
    result[f"{name}/boxes"] = instances.bboxes
    result[f"{name}/labels"] = labels["cls"][:, 0]
    if len(instances.segments):
        result[f"{name}/segments"] = instances.segments
    if labels.get("semantic_mask") is not None:
        result[f"{name}/mask"] = labels["semantic_mask"]
    if instances.keypoints is not None:
        result[f"{name}/keypoints"] = instances.keypoints


def applied(step: Any, labels: dict[str, Any], drawn: dict[str, Any]) -> dict[str, Any]:
    """Applies a transform with the parameters that it drew."""
    return step.apply_semantic(step.apply_instances(step.apply_image(labels, drawn), drawn), drawn)


def mosaics(result: dict[str, Any]) -> None:
    """Mosaics, and what a perspective makes of them."""
    from ultralytics.data import augment

    for case, options in CASES.items():
        for kind in samples.KINDS:
            for seed in range(SEEDS):
                random.seed(f"{case} {seed}")
                dataset = Dataset(kind)
                mosaic = augment.Mosaic(dataset, imgsz=samples.IMGSZ)
                name = f"{case}/{kind}/{seed}"
                labels = dataset.get_image_and_label(seed)
                drawn = mosaic.get_params(labels)
                first = drawn["layout"][0]
                result[f"{name}/centre"] = np.array([first.get("x2a", 0), first.get("y2a", 0)])
                result[f"{name}/indices"] = np.array(dataset.asked)
                labels = applied(mosaic, labels, drawn)
                noted(result, f"{name}/mosaic", labels)
                size = (samples.IMGSZ, samples.IMGSZ)
                warp = augment.RandomPerspective(size=size, preserve_obb=dataset.use_obb, **options)
                state = random.getstate()
                drawn = warp.get_params(labels)
                result[f"{name}/matrix"], result[f"{name}/scale"] = drawn["M"], drawn["scale"]
                random.setstate(state)
                result[f"{name}/numbers"] = np.array([random.uniform(-1, 1) for _ in range(8)])
                noted(result, f"{name}/warped", applied(warp, labels, drawn))


def mixtures(result: dict[str, Any]) -> None:
    """MixUp, CutMix and CopyPaste of two images of one size."""
    from ultralytics.data import augment

    for kind in samples.KINDS:
        for seed in range(SEEDS):
            dataset = Dataset(kind)
            letterbox = augment.LetterBox(samples.IMGSZ)
            for name, mix in (
                ("mixup", augment.MixUp(dataset, letterbox, 1.0)),
                ("cutmix", augment.CutMix(dataset, letterbox, 1.0, num_areas=20)),
                ("copy flip", augment.CopyPaste(dataset, p=0.9, mode="flip")),
                ("copy mixup", augment.CopyPaste(dataset, letterbox, p=0.9, mode="mixup")),
            ):
                random.seed(f"{kind} {seed}")
                np.random.seed(seed)
                labels = letterbox(dataset.get_image_and_label(seed))
                noted(result, f"{name}/{kind}/{seed}/before", labels)
                if name.startswith("copy") and kind != "polygons":
                    continue
                dataset.asked = [seed]
                drawn = mix.get_params(labels)
                result[f"{name}/{kind}/{seed}/indices"] = np.array(dataset.asked)
                result[f"{name}/{kind}/{seed}/share"] = np.array(drawn.get("r", 0))
                result[f"{name}/{kind}/{seed}/area"] = np.array(drawn.get("area", np.zeros(4)))
                noted(
                    result,
                    f"{name}/{kind}/{seed}",
                    applied(mix, labels, drawn),
                )


def colours_and_letterboxes(result: dict[str, Any]) -> None:
    """RandomHSV with its gains, and LetterBox with several options."""
    from ultralytics.data import augment

    for seed in range(12):
        pixels = cv2.cvtColor(samples.image(seed), cv2.COLOR_RGB2BGR)
        np.random.seed(seed)
        gains = (0.015, 0.7, 0.4) if seed < 10 else (0.9, 0.9, 0.9)
        result[f"hsv/{seed}/gains"] = np.random.uniform(-1, 1, 3) * gains
        np.random.seed(seed)
        changed = augment.RandomHSV(*gains).apply_image({"img": pixels.copy()})["img"]
        result[f"hsv/{seed}/image"] = cv2.cvtColor(changed, cv2.COLOR_BGR2RGB)
    dataset = Dataset("boxes")
    for number, options in enumerate(LETTERBOXES):
        for seed in range(4):
            labels = dataset.get_image_and_label(seed)
            labels["img"] = cv2.cvtColor(samples.image(seed), cv2.COLOR_RGB2BGR)
            noted(result, f"letterbox/{number}/{seed}", augment.LetterBox(**options)(labels))


LETTERBOXES = (
    {"new_shape": 96},
    {"new_shape": (64, 112), "center": False},
    {"new_shape": 160, "scaleup": False, "padding_value": 3},
    {"new_shape": 96, "auto": True, "stride": 32},
    {"new_shape": (70, 50), "scale_fill": True},
)


def main(path: str) -> None:
    """Writes all of them."""
    result: dict[str, Any] = {}
    mosaics(result)
    mixtures(result)
    colours_and_letterboxes(result)
    np.savez(path, **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
