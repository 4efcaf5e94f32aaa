"""Does a YOLO learn as well through fastload as from Ultralytics' own loader?

Method. An unmodified Ultralytics trains yolov8n from random weights, with its own mosaics, scales, shifts,
colours and flips: once plain, once after `fastload.ultralytics.patch()`, and once more so with
`cache="ram"`, in which fastload keeps colours at half the resolution. Each side has the same seeds, and a
seed the same weights and random numbers on all sides. One worker loads the images of a run, one thread
calculates. All objects are of one class: few epochs of few images do not teach a network more. It is tested
with the images that it learned from, if the data has no others. Ultralytics' own function removes boxes that
overlap, because torchvision's needs its compiled library.

Reading it. Losses and scores of the last epoch: for each side the mean of its seeds and their standard
deviation. The sides should differ by no more than the seeds do: the difference of the means is shown with its
standard error, and whether the ranges of the seeds overlap.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from _harness import identified, options_of, progress, publish_json, work_folder
from _seeds import verdict
from peers.torchvision_operators import declare_operators

import fastload
from fastload.bench.images import make_photo
from fastload.system.cpus import usable_cpus

# For each side: if it is fastload's, and the cache.
_SIDES = {
    "Ultralytics": (False, False),
    "fastload": (True, False),
    'fastload, cache="ram"': (True, "ram"),
}
_REFERENCE, *_OWN = _SIDES

# A step for each batch: Ultralytics' default of a step for 64 images is too few for so few images.
_HYPERPARAMETERS = {"batch": 16, "nbs": 16, "optimizer": "AdamW", "lr0": 0.002, "single_cls": True}

_HEIGHT, _WIDTH = 240, 320


def main() -> None:
    options = options_of(
        __doc__,
        data={"type": Path, "metavar": "YAML", "help": "a YOLO dataset (128 images, made for it)"},
        epochs={"type": int, "metavar": "N", "help": "of every training (30)"},
        imgsz={"type": int, "default": 160, "metavar": "N", "help": "pixels of the images' sides (160)"},
    )
    if find_spec("ultralytics") is None or find_spec("torchvision") is None:
        raise SystemExit("it needs Ultralytics and torchvision: 'make frameworks'")
    options.epochs = options.epochs or (1 if options.smoke else 30)
    options.imgsz = 64 if options.smoke else options.imgsz
    options.runs = max(options.runs, 2)  # one seed does not show how seeds differ
    with work_folder(options) as folder:
        publish_json(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on all sides, seed by seed, as many at once as there are CPUs."""
    source = options.data or drawn(folder / "drawn", 4 if options.smoke else 128)
    jobs = [(seed, side) for seed in range(options.runs) for side in _SIDES]
    scores: dict[str, list[dict[str, float]]] = {side: [] for side in _SIDES}
    spawn = get_context("spawn")
    with ProcessPoolExecutor(usable_cpus(), spawn, prepare, (folder,)) as pool:
        images = pool.submit(scan, source).result()  # writes the cache of labels, which all then read
        futures = [pool.submit(train, source, *job, options.epochs, options.imgsz, folder) for job in jobs]
        for (seed, side), future in zip(jobs, futures, strict=True):
            scores[side].append(future.result())
            progress(f"seed {seed}, {side}: {scores[side][-1]}")
    measured = {
        side: {name: [found[name] for found in scores[side]] for name in scores[side][0]} for side in _SIDES
    }
    return {
        **identified(
            "yolo",
            str(__doc__).partition("\n")[0],
            {
                "data": "files given" if options.data else "files made by the benchmark",
                "images": images,
                "side": options.imgsz,
                "epochs": options.epochs,
                "seeds": options.runs,
                **_HYPERPARAMETERS,
                "page cache": "warm",
            },
            {name: version(name) for name in ("ultralytics", "torchvision")},
        ),
        "measured": measured,
        "differences": {
            side: {name: verdict(measured[_REFERENCE][name], measured[side][name]) for name in measured[side]}
            for side in _OWN
        },
        "tables": [],
        "rows": [],
        "missing": [],
        "grids": [grid(measured[_REFERENCE], side, measured[side]) for side in _OWN],
    }


def grid(reference: dict[str, list[float]], side: str, own: dict[str, list[float]]) -> dict[str, Any]:
    """Return a table of one side beside Ultralytics."""
    heads = ["Last epoch", _REFERENCE, side, "difference", "its standard error", "ranges overlap"]
    rows = []
    for name, values in own.items():
        found = verdict(reference[name], values)
        means = [
            f"{statistics.mean(of):.4f} ± {statistics.stdev(of):.4f}" for of in (reference[name], values)
        ]
        numbers = f"{found['difference']:+.4f}", f"{found['standard_error']:.4f}"
        rows.append([name, *means, *numbers, "yes" if found["ranges_overlap"] else "no"])
    return {"heads": heads, "rows": rows}


def prepare(folder: Path) -> None:
    """Prepare a process: no network, no settings of the user's."""
    os.environ |= {"YOLO_CONFIG_DIR": str(folder), "YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
    prepare.operators = declare_operators()  # type: ignore[attr-defined]
    import torchvision
    from ultralytics.utils import nms

    torchvision.ops.nms = nms.TorchNMS.nms
    # A slow machine must not lose boxes.
    nms.non_max_suppression = functools.partial(nms.non_max_suppression, max_time_img=math.inf)


def scan(source: Path) -> int:
    """Return the number of images to learn from."""
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_yolo_dataset
    from ultralytics.data.utils import check_det_dataset

    data = check_det_dataset(str(source))
    _, learned = [build_yolo_dataset(get_cfg(), data[split], 1, data) for split in ("val", "train")]
    return len(learned)


def train(source: Path, seed: int, side: str, epochs: int, imgsz: int, folder: Path) -> dict[str, float]:
    """Train once, and return the losses and scores of the last epoch."""
    from ultralytics import YOLO

    found: list[dict[str, float]] = []
    is_ours, cache = _SIDES[side]

    def note(trainer: Any) -> None:
        found.append(trainer.label_loss_items(trainer.tloss) | trainer.metrics)

    model = YOLO("yolov8n.yaml")
    model.add_callback("on_pretrain_routine_start", _use_a_worker)
    model.add_callback("on_model_save", note)
    with fastload.ultralytics.patch() if is_ours else contextlib.nullcontext():
        model.train(
            data=str(source),
            epochs=epochs,
            imgsz=imgsz,
            seed=seed,
            cache=cache,
            device="cpu",
            plots=False,
            val=False,  # only in the last epoch
            project=str(folder),
            name=f"{'ours' if is_ours else 'theirs'}-{cache}-{seed}",
            **_HYPERPARAMETERS,
        )
    return {name: float(value) for name, value in found[-1].items() if "loss" in name or "mAP" in name}


def _use_a_worker(trainer: Any) -> None:
    # Without a GPU, Ultralytics has set none, and one thread for each CPU.
    trainer.args.workers = 1
    torch.set_num_threads(1)


def drawn(folder: Path, count: int) -> Path:
    """Draw photo-like images with one to four discs each, and write their boxes."""
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(count):
        image, rows = make_photo(random, _HEIGHT, _WIDTH), []
        for _ in range(random.integers(1, 5)):
            radius = int(random.integers(12, 50))
            x, y = (int(random.integers(radius, side - radius)) for side in (_WIDTH, _HEIGHT))
            cv2.circle(image, (x, y), radius, random.integers(0, 255, 3).tolist(), -1)
            box = x / _WIDTH, y / _HEIGHT, 2 * radius / _WIDTH, 2 * radius / _HEIGHT
            rows.append(" ".join(map(str, (0, *box))))
        cv2.imwrite(str(folder / "images" / f"{number:03d}.jpg"), image)
        (folder / "labels" / f"{number:03d}.txt").write_text("\n".join(rows))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [disc]\n")
    return folder / "data.yaml"


if __name__ == "__main__":
    main()
