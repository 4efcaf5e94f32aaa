"""How many images a second does Ultralytics' loader give a YOLO training, and how many through fastload?

Method: Ultralytics' own dataset and loader at 640 pixels, in batches of 16, with two workers; plain, and
after `fastload.ultralytics.patch()`. Images are files, a packed dataset, or in memory (`cache="ram"`). In a
turn, a loader is made, gives one epoch that does not count, and then the epochs that do. Augmentation is off,
as in a validation, or as by default: mosaic, scale, shift, colours, flip.

Reading it: rows of one table did the same work. "Stored" compares the bytes of files, of the packed dataset,
or of the images in memory. A packed dataset in `yuv420` and images that fastload keeps in memory have colours
at half the resolution.
"""

from __future__ import annotations

import contextlib
import os
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from _harness import (
    Comparison,
    Key,
    Missing,
    Reading,
    Report,
    Table,
    folder_bytes,
    options_of,
    publish,
    take_turns,
    work_folder,
)

import fastload
from fastload.bench.images import make_jpeg

_SIDE, _BATCH, _WORKERS, _CLASSES = 640, 16, 2, 80
_OFF, _FULL = "Augmentation off", "Full augmentation"

# For each row: whether it is fastload's, whether it reads the packed dataset, and the cache.
_ROWS = {
    "Ultralytics, files": (False, False, None),
    "fastload, files": (True, False, None),
    "fastload, packed (yuv420)": (True, True, None),
    'Ultralytics, cache="ram"': (False, False, "ram"),
    'fastload, cache="ram"': (True, False, "ram"),
}


def main() -> None:
    options = options_of(
        __doc__,
        data={"type": Path, "metavar": "YAML", "help": "a YOLO dataset (photo-like JPEGs, made for it)"},
        images={"type": int, "default": 128, "metavar": "N", "help": "how many are made (128)"},
        epochs={"type": int, "default": 6, "metavar": "N", "help": "counted in a turn (6)"},
    )
    if options.smoke:
        options.images, options.epochs = 8, 1
    keys = [Key(table, row) for table in (_OFF, _FULL) for row in _ROWS]
    count, readings, missing = options.images * options.epochs, {}, []
    if find_spec("ultralytics") is None or find_spec("torchvision") is None:
        missing = [Missing(*key, "Ultralytics or torchvision is not installed") for key in keys]
    else:
        with work_folder(options) as folder:
            _prepare_ultralytics(folder)
            source = options.data or _drawn(folder / "photos", options.images)
            packed = folder / "photos.fl"
            fastload.pack(source, packed, encode="yuv420", on_error="skip")
            count = len(_dataset(source, "val", None)) * options.epochs
            sides = [
                lambda key=key: {key: _turn(key, packed if _ROWS[key.row][1] else source, options.epochs)}
                for key in keys
            ]
            readings = take_turns(sides, options.runs)
    setting = {
        "images": f"{count // options.epochs} " + ("given" if options.data else "made by the benchmark"),
        "side": _SIDE,
        "batch size": _BATCH,
        "workers": _WORKERS,
        "epochs in a turn": options.epochs,
        "runs": options.runs,
        "page cache": "warm",
    }
    beside = [("files", "files"), ("packed (yuv420)", "files"), ('cache="ram"', 'cache="ram"')]
    report = Report(
        name="detection",
        question=__doc__.splitlines()[0],
        setting=setting,
        tables=[Table(table, "images", count) for table in (_OFF, _FULL)],
        readings=readings,
        missing=missing,
        versions=_versions(),
        comparisons=[
            Comparison(Key(table, f"fastload, {ours}"), Key(table, f"Ultralytics, {theirs}"))
            for table in (_OFF, _FULL)
            for ours, theirs in beside
        ],
    )
    publish(report, options)


def _prepare_ultralytics(folder: Path) -> None:
    """Keep it from the network and the user's settings; declare what torchvision misses without CUDA."""
    os.environ |= {"YOLO_CONFIG_DIR": str(folder), "YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
    if not torch.cuda.is_available():
        library = _prepare_ultralytics.library = torch.library.Library("torchvision", "DEF")  # type: ignore[attr-defined]
        with contextlib.suppress(RuntimeError):
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _drawn(folder: Path, count: int) -> Path:
    """Draw images of COCO's usual sizes, with seven boxes each, as COCO has on average."""
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        size = [(480, 640), (427, 640), (640, 480)][number % 3]
        (folder / "images" / f"{number:06d}.jpg").write_bytes(make_jpeg(number, size))
        centres, sides = rng.uniform(0.2, 0.8, (7, 2)), rng.uniform(0.05, 0.4, (7, 2))
        rows = zip(rng.integers(0, _CLASSES, 7), np.hstack([centres, sides]).round(5).tolist(), strict=True)
        text = "\n".join(" ".join(map(str, [label, *box])) for label, box in rows)
        (folder / "labels" / f"{number:06d}.txt").write_text(text)
    names = ", ".join(f"c{number}" for number in range(_CLASSES))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images\nval: images\nnames: [{names}]\n")
    return folder / "data.yaml"


def _turn(key: Key, source: Path, epochs: int) -> Reading:
    """Return the time of some epochs of a new loader, and the bytes from which it loads."""
    from ultralytics.data.build import build_dataloader

    is_ours, is_packed, cache = _ROWS[key.row]
    with fastload.ultralytics.patch() if is_ours else contextlib.nullcontext():
        mode = "val" if key.table == _OFF else "train"
        dataset = _dataset(source, mode, cache)
        loader = build_dataloader(dataset, batch=_BATCH, workers=_WORKERS, shuffle=mode == "train")
        list(loader)
        cpu_before, began = _cpu_s(), time.perf_counter()
        for _ in range(epochs):
            for _ in loader:
                pass
        seconds, cpu_s = time.perf_counter() - began, _cpu_s() - cpu_before
        loader.close()
    if cache == "ram":
        stored = dataset.ims.store.used_bytes if is_ours else int(dataset.ims.offsets[-1])
    else:
        stored = (
            folder_bytes(Path(dataset.img_path)) if is_packed else sum(map(os.path.getsize, dataset.im_files))
        )
    return Reading(seconds, cpu_s, stored)


def _cpu_s() -> float:
    """Return the CPU time of this process and of its workers."""
    process = psutil.Process()
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _dataset(source: Path, mode: str, cache: str | None) -> Any:
    from ultralytics.cfg import get_cfg
    from ultralytics.data.build import build_yolo_dataset
    from ultralytics.data.utils import check_det_dataset

    torch.manual_seed(0)
    settings = get_cfg(overrides={"imgsz": _SIDE, "deterministic": False})
    settings.cache = cache
    data = check_det_dataset(str(source))
    return build_yolo_dataset(settings, data["train"], _BATCH, data, mode=mode)


def _versions() -> dict[str, str]:
    with contextlib.suppress(PackageNotFoundError):
        return {"ultralytics": version("ultralytics")}
    return {}


if __name__ == "__main__":
    main()
