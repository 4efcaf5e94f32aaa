"""Compares batches of Ultralytics' datasets with those that fastload makes of them.

    python -m tests.frameworks.ultralytics_patched FOLDER RESULT

FOLDER: where the images are drawn. RESULT: the JSON file to write: for each case what differs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

import fastload
import tests.conftest  # noqa: F401 - declares the operators that torchvision misses beside a CPU-only torch
from fastload.images.exif import orientation_segment
from tests.frameworks.batches import seed_all, write

SIDE = 96
COUNT = 14

OFF = {"mosaic": 0.0, "translate": 0.0, "scale": 0.0, "fliplr": 0.0, "hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}
# A rotation is warped by the same function of OpenCV as by Ultralytics; without one, a resize does it.
EXACT = {"degrees": 5.0, "flipud": 0.5}
MIXED = {"mixup": 0.5, "cutmix": 0.5, "perspective": 0.001}

# For each case: the task, where samples come from and how, and hyperparameters.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "augmentation off": ("detect", {"workers": 2}, OFF),
    "augmentation off, no workers": ("detect", {"workers": 0}, OFF),
    "validation": ("detect", {"mode": "val"}, {}),
    "rectangular validation": ("detect", {"mode": "val", "rect": True}, {}),
    "rectangular training": ("detect", {"rect": True}, EXACT),
    "resized": ("detect", {}, {"flipud": 0.5}),
    "warped": ("detect", {}, EXACT),
    "warped, no workers": ("detect", {"workers": 0}, EXACT),
    "mixed": ("detect", {}, EXACT | MIXED),
    "mosaic closed": ("detect", {"closes": True}, EXACT),
    "one class": ("detect", {}, EXACT | {"single_cls": True}),
    "chosen classes": ("detect", {}, EXACT | {"classes": [1]}),
    "a fraction": ("detect", {}, EXACT | {"fraction": 0.5}),
    "BGR": ("detect", {}, EXACT | {"bgr": 0.5}),
    "own step": ("detect", {"step": "own"}, {}),
    "albumentations": ("detect", {"step": "albumentations"}, EXACT),
    "nine images": ("detect", {"step": "nine"}, EXACT),
    "segments": ("segment", {}, EXACT | {"copy_paste": 0.9}),
    "separate segments": ("segment", {}, EXACT | {"overlap_mask": False, "copy_paste_mode": "mixup"}),
    "poses": ("pose", {}, EXACT),
    "corners": ("obb", {}, EXACT),
    "corners mixed": ("obb", {}, EXACT | MIXED),
    "in memory": ("detect", {"mode": "val", "cache": "ram"}, {}),
    "in memory, warped": ("detect", {"cache": "ram"}, EXACT | {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}),
    "on disk": ("detect", {"cache": "disk"}, EXACT),
    "packed": ("detect", {"is_packed": True}, EXACT),
    "packed segments": ("segment", {"is_packed": True}, EXACT),
    "packed poses": ("pose", {"is_packed": True}, EXACT),
    "packed corners": ("obb", {"is_packed": True}, EXACT),
    "packed on disk": ("detect", {"is_packed": True, "cache": "disk"}, EXACT),
    "packed in memory": ("detect", {"is_packed": True, "mode": "val", "cache": "ram"}, {}),
}

ROWS = {
    "detect": "{c} {x} {y} .3 .4\n1 .5 .5 .2 .9",
    "segment": "{c} {x} {y} .7 .2 .8 .7 .3 .8\n1 .1 .1 .4 .1 .3 .35",
    "pose": "0 {x} {y} .3 .4 .2 .3 2 .5 .5 1 .7 .7 0\n0 .5 .5 .9 .9 .1 .1 2 .9 .2 2 .4 .4 2",
    "obb": "{c} {x} {y} .7 .3 .6 .7 .2 .6\n2 .5 .1 .9 .5 .5 .9 .1 .5",
}


def draw(folder: Path, task: str) -> Path:
    """Draws images of several sizes and formats, and writes their labels and a description."""
    images, labels = folder / task / "images", folder / task / "labels"
    for each in (images, labels):
        each.mkdir(parents=True)
    rng = np.random.default_rng(3)
    for number in range(COUNT):
        height, width = 60 + 11 * (number % 5), 120 - 13 * (number % 4)
        # Smooth, as photos are: how noise is interpolated says nothing.
        image = cv2.resize(rng.integers(0, 255, (7, 9, 3), dtype=np.uint8), (width, height))
        data = cv2.imencode(".png" if number == 3 else ".jpg", image)[1].tobytes()
        if number == 5:
            data = data[:2] + orientation_segment(6) + data[2:]
        (images / f"{number:02d}{'.png' if number == 3 else '.jpg'}").write_bytes(data)
        place = {"c": number % 3, "x": round(0.2 + 0.01 * number, 3), "y": 0.3}
        if number != 7:
            (labels / f"{number:02d}.txt").write_text(ROWS[task].format(**place))
    text = f"path: {folder / task}\ntrain: images\nval: images\nnames: [a, b, c]\n"
    text += "kpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n" if task == "pose" else ""
    (folder / f"{task}.yaml").write_text(text)
    return folder / f"{task}.yaml"


def batches(case: str, source: Path) -> tuple[list[dict[str, Any]], Any]:
    """Loads two epochs; returns the batches and the dataset."""
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_dataloader, build_yolo_dataset
    from ultralytics.data.utils import check_det_dataset

    task, how, hyperparameters = CASES[case]
    seed_all(0)
    options = get_cfg(overrides={"imgsz": SIDE, "task": task, "deterministic": False, **hyperparameters})
    options.cache = how.get("cache")
    mode, is_rect = how.get("mode", "train"), how.get("rect", False)
    data = check_det_dataset(str(source))
    dataset = build_yolo_dataset(options, data["train"], 4, data, mode=mode, rect=is_rect)
    change_steps(dataset, how.get("step"))
    shuffle = mode == "train" and not is_rect
    # Imported here, because it imports Ultralytics.
    from fastload.ultralytics.caches import CopiedFile

    if isinstance(name := dataset.im_files[0], CopiedFile):
        while name.copy.report().state.startswith("filling"):
            time.sleep(0.1)
    loader = build_dataloader(dataset, batch=4, workers=how.get("workers", 1), shuffle=shuffle)
    found = list(loader)
    if how.get("closes"):
        dataset.close_mosaic(options)
        loader.reset()
    found += list(loader)
    loader.close()
    return found, dataset


def change_steps(dataset: Any, step: str | None) -> None:
    from ultralytics.data import augment

    steps = dataset.transforms.transforms
    if step == "own":
        steps.insert(1, Brighten())
    elif step == "nine":
        steps[0].transforms[0] = augment.Mosaic(dataset, imgsz=SIDE, n=9)
    elif step == "albumentations":
        [wrapper] = [each for each in steps if isinstance(each, augment.Albumentations)]
        # As after the import of that package, which is not needed for this.
        wrapper.contains_spatial, wrapper.topology_transforms, wrapper.transform = False, [], brightened


def brightened(image: np.ndarray) -> dict[str, np.ndarray]:
    return {"image": cv2.add(image, int(np.random.randint(20)))}


class Brighten:
    """A step that nobody knows."""

    def __call__(self, labels: dict[str, Any]) -> dict[str, Any]:
        labels["img"] = cv2.add(labels["img"], 20)
        return labels


def differences(theirs: list[Any], ours: list[Any]) -> dict[str, Any]:
    """Return the differences: names of entries, and distances of pixels."""
    names = [list(batch) for batch in theirs] == [list(batch) for batch in ours]
    different = {
        name
        for one, other in zip(theirs, ours, strict=True)
        for name in one
        if name not in ("img", "im_file") and not is_same(one[name], other[name])
    }
    files = [[Path(f).name for f in batch["im_file"]] for batch in theirs]
    if files != [[Path(f).name for f in batch["im_file"]] for batch in ours]:
        different.add("im_file")
    apart = [(a["img"].int() - b["img"].int()).abs() for a, b in zip(theirs, ours, strict=True)]
    return {
        "has same names": names,
        "different": sorted(different),
        "most": max(int(each.max()) for each in apart),
        "mean": float(torch.cat([each.flatten() for each in apart]).float().mean()),
    }


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return repr(one) == repr(other)


class Said(logging.Handler):
    """Collects the messages of Ultralytics' logger about fastload."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "fastload" in record.getMessage():
            self.lines.append(record.getMessage())


def main(folder: str, result: str) -> None:
    """Loads every case by Ultralytics and by fastload."""
    from ultralytics.utils import LOGGER

    os.environ["XDG_CACHE_HOME"] = folder
    said = Said()
    LOGGER.setLevel(logging.INFO)
    LOGGER.handlers = [said]
    sources = {task: draw(Path(folder), task) for task in ROWS}
    packed = {task: Path(folder, f"{task}.fl") for task in ROWS}
    for task, path in packed.items():
        fastload.pack(sources[task], path, workers=1)
    found: dict[str, Any] = {}
    for case, (task, how, _) in CASES.items():
        theirs, dataset = batches(case, sources[task])
        for cached in Path(folder).rglob("*.npy"):
            cached.unlink()
        said.lines.clear()
        patched = contextlib.ExitStack()
        with patched:
            patched.enter_context(fastload.ultralytics.patch())
            ours, our_dataset = batches(case, (packed if how.get("is_packed") else sources)[task])
        found[case] = differences(theirs, ours) | {"said": list(said.lines)}
        found[case]["files written"] = [file.name for file in Path(folder).rglob("*.npy")]
        if case == "on disk":
            found[case]["hits"] = our_dataset.im_files[0].copy.report().hits
        if how.get("cache") == "ram":
            found[case]["share of memory"] = our_dataset.ims.store.used_bytes / int(dataset.ims.offsets[-1])
    from ultralytics.data.build import InfiniteDataLoader

    assert not any("fastload" in base.__module__ for base in InfiniteDataLoader.__mro__), "it is undone"
    write(result, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
