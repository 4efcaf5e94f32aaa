"""How many images of four bands of 16 bits a second, from TIFFs and packed, beside tifffile and torch?

Method: images of 512×512 pixels and 4 bands of uint16, as TIFFs without compression and deflated, in random
crops resized to 256×256, in batches of 16, with two workers. The obvious loader reads a file with tifffile,
crops, and calls torch's resize in float32; fastload loads the same files, and the packed datasets. In a turn,
a loader gives one batch that does not count, and then the epochs that do. Files are in the page cache.

Reading it: rows of one table did the same work, "antialiased" with every source pixel, as torchvision does by
default, the others without.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tifffile
import torch
from _harness import (
    Comparison,
    Key,
    Reading,
    Report,
    Table,
    folder_bytes,
    options_of,
    publish,
    take_turns,
    work_folder,
)
from torch.utils.data import DataLoader, Dataset

import fastload
import fastload.transforms as T

_SIDE, _CROP, _BANDS, _BATCH, _WORKERS = 512, 256, 4, 16, 2
_FILES = {"plain": None, "deflated": "zlib"}
_OBVIOUS = "tifffile, torch's resize and DataLoader"
_ENCODINGS = ("raw", "blosc", "keep")
_ROWS = (_OBVIOUS, "fastload, files", *(f"fastload, packed ({encode})" for encode in _ENCODINGS))


def main() -> None:
    options = options_of(
        __doc__,
        images={"type": int, "default": 128, "metavar": "N", "help": "how many (128)"},
        epochs={"type": int, "default": 3, "metavar": "N", "help": "counted in a turn (3)"},
    )
    if options.smoke:
        options.images, options.epochs = 32, 1
    keys = [
        Key(f"{files} TIFFs, {'antialiased' if antialias else 'not antialiased'}", row)
        for files in _FILES
        for antialias in (True, False)
        for row in _ROWS
    ]
    count = (options.images // _BATCH * options.epochs - 1) * _BATCH
    with work_folder(options) as folder:
        for files, compression in _FILES.items():
            _write(folder / files, options.images, compression)
            for encode in _ENCODINGS:
                fastload.pack(folder / files, folder / f"{files}-{encode}.fl", encode=encode)
        sides = [lambda key=key: {key: _turn(key, folder, options.epochs)} for key in keys]
        readings = take_turns(sides, options.runs)
    report = Report(
        name="pixels",
        question=__doc__.splitlines()[0],
        setting={
            "images": options.images,
            "size": f"{_SIDE}×{_SIDE}×{_BANDS} uint16",
            "crops": f"{_CROP}×{_CROP}",
            "batch size": _BATCH,
            "workers": _WORKERS,
            "epochs in a turn": options.epochs,
            "runs": options.runs,
            "page cache": "warm",
        },
        tables=[Table(title, "images", count) for title in dict.fromkeys(key.table for key in keys)],
        readings=readings,
        missing=[],
        versions={"tifffile": tifffile.__version__},
        comparisons=[Comparison(key, Key(key.table, _OBVIOUS)) for key in keys if key.row != _OBVIOUS],
    )
    publish(report, options)


def _write(folder: Path, count: int, compression: str | None) -> None:
    """Write images of soft shapes of several scales with some noise, in two class folders."""
    for number in range(count):
        rng = np.random.default_rng(number)
        levels = np.full((_SIDE, _SIDE, _BANDS), 12_000.0, np.float32)
        for scale, strength in ((256, 6_000), (64, 2_500), (16, 900), (4, 300)):
            coarse = rng.normal(size=(_SIDE // scale + 2,) * 2 + (_BANDS,)).astype(np.float32)
            levels += strength * cv2.resize(coarse, (_SIDE, _SIDE), interpolation=cv2.INTER_CUBIC)
        levels += rng.normal(scale=40, size=levels.shape)
        path = folder / f"class{number % 2}" / f"{number:05d}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(
            path,
            levels.clip(0, 65_535).astype(np.uint16),
            photometric="minisblack",
            planarconfig="contig",
            compression=compression,
            predictor=compression is not None,
        )


class _Obvious(Dataset[Any]):
    """Files read by tifffile, cropped at random and resized by torch in single precision."""

    def __init__(self, folder: Path, antialias: bool) -> None:
        self.files = sorted(folder.rglob("*.tif"))
        self.antialias = antialias

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.from_numpy(tifffile.imread(self.files[index])).permute(2, 0, 1)
        area, ratio = torch.empty(2).uniform_().tolist()
        area, ratio = (0.08 + 0.92 * area) * _SIDE**2, (3 / 4) * (16 / 9) ** ratio
        height, width = (min(_SIDE, round(side**0.5)) for side in (area / ratio, area * ratio))
        top, left = (int(torch.randint(_SIDE - side + 1, ())) for side in (height, width))
        part = image[:, top : top + height, left : left + width].float()[None]
        resized = torch.nn.functional.interpolate(
            part, (_CROP, _CROP), mode="bilinear", antialias=self.antialias
        )
        return resized[0].round_().to(torch.uint16), index % 2


def _turn(key: Key, folder: Path, epochs: int) -> Reading:
    """Return the time of some epochs of a new loader but for its first batch, and the bytes that it loads."""
    files, antialias = key.table.partition(" ")[0], "not" not in key.table
    place = folder / files
    crop = T.RandomResizedCrop(_CROP, antialias=antialias)
    loader: Any
    if key.row == _OBVIOUS:
        loader = DataLoader(
            _Obvious(place, antialias), _BATCH, shuffle=True, num_workers=_WORKERS, persistent_workers=True
        )
    else:
        if "packed" in key.row:
            place = folder / f"{files}-{key.row.partition('(')[2][:-1]}.fl"
            dataset: Any = fastload.PackedDataset(place, crop)
        else:
            dataset = fastload.FolderDataset(place, crop)
        loader = fastload.DataLoader(
            dataset, _BATCH, shuffle=True, num_workers=_WORKERS, persistent_workers=True
        )
    began = 0.0
    for epoch in range(epochs):
        for batch, _ in enumerate(loader):
            if epoch == batch == 0:
                began = time.perf_counter()
    return Reading(time.perf_counter() - began, stored_bytes=folder_bytes(place))


if __name__ == "__main__":
    main()
