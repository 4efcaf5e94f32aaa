"""What does listing a folder cost, compared with torchvision's ImageFolder?

Method. Three trees of empty files: one class folder of 200,000 files, 20,000 class folders of two, and class
folders five levels deep. The sides take turns in one process, and list the same tree with a warm page
cache:

- *torchvision ImageFolder*, which walks, sorts and selects by suffix;
- *FolderDataset*, which also lets every layout look at the listing, and looks for other readings of it;
- *pack*: `open_source`, with the sizes and times of all files, by which packing cuts shards and notices a
  changed source.

How to read it. Times are CPU times: a slow disk would delay every side by the same reads. `relative time` is
the median, as a multiple of ImageFolder's.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _harness import (
    Key,
    Missing,
    Reading,
    Report,
    Side,
    Table,
    options_of,
    progress,
    publish,
    take_turns,
    work_folder,
)
from peers.torchvision_operators import declare_operators

from fastload import FolderDataset
from fastload.sources import open_source

_REFERENCE = "torchvision ImageFolder"


def main() -> None:
    options = options_of(__doc__)
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Make the trees, and list them in turns."""
    scale = 100 if options.smoke else 1
    deep = [f"c{at % 20:02d}/{at // 20 % 10}/{at // 200}/x/y" for at in range(2_000 // scale)]
    trees = {
        "One class folder of 200,000 files": _tree(folder / "one", ["a"], 200_000 // scale),
        "20,000 class folders of two files": _tree(
            folder / "many", [f"c{at:05d}" for at in range(20_000 // scale)], 2
        ),
        "Class folders five levels deep, 20,000 files": _tree(folder / "deep", deep, 10),
    }
    sides: list[Side] = []
    missing = []
    for title, (root, _) in trees.items():
        layout = "classes" if title.endswith("deep, 20,000 files") else None
        listed = {
            "fastload, FolderDataset": partial(FolderDataset, root, layout=layout),
            "fastload, pack": partial(_opened, root, layout),
        }
        try:
            declare_operators()
            from torchvision.datasets import ImageFolder

            listed = {_REFERENCE: partial(ImageFolder, root), **listed}
        except ModuleNotFoundError as error:
            missing.append(Missing(title, _REFERENCE, str(error)))
        sides += [partial(_timed, title, row, work) for row, work in listed.items()]
    return Report(
        name="listing",
        question=str(__doc__).partition("\n")[0],
        setting={
            "page cache": "warm; directories alone are read",
            "runs": options.runs,
            "processes": 1,
            "times": "CPU",
        },
        tables=[Table(title, "files", count) for title, (_, count) in trees.items()],
        readings=take_turns(sides, options.runs),
        missing=missing,
        versions={},
    )


def _tree(root: Path, folders: list[str], files: int) -> tuple[str, int]:
    progress(f"making {len(folders) * files:,} files")
    for folder in folders:
        place = root / folder
        place.mkdir(parents=True)
        for number in range(files):
            (place / f"{folder[:6].replace('/', '_')}_{number:06d}.jpg").touch()
    return str(root), len(folders) * files


def _opened(root: str, layout: str | None) -> None:
    for source in open_source(root, layout=layout).values():
        source.sizes_bytes()
        source.fingerprint()


def _timed(table: str, row: str, work: Callable[[], object]) -> dict[Key, Reading]:
    # A full collection of what imports made takes 0.1 s, and falls into one turn or another.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    work()
    return {Key(table, row): Reading(time.process_time() - began)}


if __name__ == "__main__":
    main()
