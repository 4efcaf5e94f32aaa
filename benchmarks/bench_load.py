"""How many images a second reach the training loop?

Question: with the files in the page cache and a loop that does nothing, how many augmented images a second
does each loader deliver on two processors?

Method. Photos become 224×224, uint8, by a random resized crop and a flip, in batches of 64; thumbnails of
32×32 are padded by 4, cropped and flipped, in batches of 512, as uint8 and as normalised float32. Photos
come from `--photos`, a folder of class folders or a tar of one, or are generated with the file size of
ImageNet's; if they are fewer than an epoch needs, they are copied to separate files, the same for all sides.
Every side is a separate process in its peer's environment (`make peers`): it packs what it needs, loads
epochs to warm up (FFCV compiles meanwhile), and keeps its workers. Then the sides take turns: in its turn a
side loads whole epochs for at least a second, while all others are idle. There are 2 workers, or threads if
the peer uses those; fastload's thumbnails also run with none and with one.

The peers are configured for speed according to their own documentation:

- *torch DataLoader + torchvision/PIL*: ImageFolder and torchvision's transforms on PIL images, of the
  faster generation: v2 for photos, the first for thumbnails; antialiased.
- *torch DataLoader + OpenCV*: a Dataset of imdecode, crop, `INTER_LINEAR` resize, flip; not antialiased.
- *DALI*: its CPU pipeline on the files, in its own threads: once decoding whole images, once skipping what
  the crop does not need. Antialiased, triangular filter; chroma upsampled by copying (its default), which
  is faster and less accurate than in all others. Its batches are not converted to torch tensors.
- *FFCV*: `OrderOption.RANDOM`, `os_cache=True`, 3 batches ahead, everything compiled. Photos as JPEG of
  quality 90, and raw with the longer side at most 400; `INTER_AREA`, which is further from the antialiased
  reference than fastload (0.3–0.6 levels on average; fastload's differ by one at most). Thumbnails raw; as
  float32 once by its compiled NormalizeImage, and once by torch, as in its CIFAR-10 example.

fastload's sides are named by how the images are stored: the folder's files; `keep`, their bytes; `tiled`,
their pixels; `jpeg`, re-encoded with quality 90; `yuv420` and `raw`, with the longer side at most 400 like
FFCV's. They are antialiased, except for "linear": `antialias=False`, OpenCV's `INTER_LINEAR`.

The ceiling is a process that runs only `cv2.imdecode` and the resize, one after the other, on crops that
were cut out beforehand (of files with tiles, only the tiles that the crop touches).

Reading it. `CPU` is the time of all processes of a side in an epoch: on a shared machine it is the steadier
measure. The last table divides rates: of the medians, and of each single run; below 1 is slower. CPU time
and stored bytes are divided, too; there, below 1 is less. The rows with `2 × cv2.imdecode and resize` show
the share of two cores' ceiling that is reached, and the CPU time of an image as a multiple of the
ceiling's.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from _drivers import Driver
from _harness import (
    PEERS_OPTION,
    ROOT,
    Key,
    Missing,
    Reading,
    Report,
    Table,
    folder_bytes,
    options_of,
    progress,
    publish,
    take_turns,
    work_folder,
)
from _load_sides import CEILING, FLOATS, PHOTOS, SLUGS, THUMBS, Loading, comparisons, photo_sides, thumb_sides
from _photos import copy_folder, make_folder, unpack_tar

from fastload.images.jpegtran import find_jpegtran

PROGRAMS = ROOT / "benchmarks" / "peers"
# 400 photos are 160 MB of pixels: more than processors' caches hold.
_DISTINCT = {"photos": 400, "thumbs": 1_000}


def main() -> None:
    options = options_of(
        __doc__,
        photos={"type": Path, "metavar": "PATH", "help": "a folder of class folders, or its tar (made here)"},
        thumbs={"type": Path, "metavar": "PATH", "help": "the same, of images of 32×32 (made here)"},
        epoch={"type": int, "metavar": "N", "help": "photos in an epoch (4,000)"},
        thumb_epoch={"type": int, "metavar": "N", "help": "thumbnails in an epoch (50,000)"},
        workers={"type": int, "metavar": "N", "default": 2, "help": "workers or threads of each side (2)"},
        min_s={"type": float, "metavar": "S", "help": "the least seconds of a turn (1)"},
        peers=PEERS_OPTION,
        only={
            "metavar": "TABLE[/SIDES]",
            "help": f"one of {', '.join(SLUGS)}; only its sides with one of these words; not saved",
        },
    )
    options.epoch = options.epoch or (16 if options.smoke else 4_000)
    options.thumb_epoch = options.thumb_epoch or (64 if options.smoke else 50_000)
    if options.min_s is None:
        options.min_s = 0.0 if options.smoke else 1.0
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Run the sides that the options select."""
    chosen = choose([*photo_sides(), *thumb_sides()], options)
    bench = Bench(options, folder)
    readings: dict[Key, list[Reading]] = {}
    for tables in SLUGS.values():
        readings |= bench.run([side for side in chosen if side.table in tables])
    counts = {PHOTOS: options.epoch, CEILING: options.epoch}
    counts |= {THUMBS: options.thumb_epoch, FLOATS: options.thumb_epoch}
    asked = {side.table for side in chosen}
    return Report(
        name="load",
        question=str(__doc__).partition("\n")[0],
        setting={
            **bench.data,
            "runs": options.runs,
            "workers": options.workers,
            "page cache": "warm",
        },
        tables=[Table(title, "images", count) for title, count in counts.items() if title in asked],
        readings=readings,
        missing=bench.missing,
        versions=bench.versions,
        comparisons=comparisons(options.workers),
    )


def choose(sides: Sequence[Loading], options: argparse.Namespace) -> list[Loading]:
    """Return the sides that the options select; end the program if there are none."""
    slug, _, names = (options.only or "").partition("/")
    parts = [name.strip().lower() for name in names.split(",")]
    chosen = [
        side
        for side in sides
        if (not slug or side.table in SLUGS.get(slug, ()))
        and any(part in side.row.lower() for part in parts)
        and (side.in_smoke or not options.smoke)
    ]
    if not chosen:
        sys.exit(f"--only must be one of {', '.join(SLUGS)}, or one and sides, got {options.only!r}")
    return chosen


class Bench:
    """Processes of the sides, and the images that they load."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self.missing: list[Missing] = []
        self.versions: dict[str, str] = {}
        self.data: dict[str, str] = {}

    def run(self, sides: Sequence[Loading]) -> dict[Key, list[Reading]]:
        """Start the sides that can run here and let them take turns."""
        able = [side for side in sides if self._is_able(side)]
        if not able:
            return {}
        with contextlib.ExitStack() as stack:
            turns = []
            for side in able:
                progress(f"getting ready: {side.table}, {side.row}")
                shared = self._photo_job() if side.table in SLUGS["photos"] else self._thumb_job()
                python = self._python(side)
                driver = Driver(python, PROGRAMS / side.program, {**shared, **side.job})
                stack.callback(driver.close)
                self.versions |= driver.versions
                is_photo = side.table in SLUGS["photos"]
                count = self._options.epoch if is_photo else self._options.thumb_epoch
                turns.append(partial(self._turn, Key(side.table, side.row), driver, count))
            return take_turns(turns, self._options.runs)

    def _turn(self, key: Key, driver: Driver, count: int) -> dict[Key, Reading]:
        return {key: driver.turn(count)}

    def _is_able(self, side: Loading) -> bool:
        lacks = None
        if not self._python(side).exists():
            lacks = "not installed (make peers)"
        elif side.job.get("store") == "tiled" and find_jpegtran() is None:
            lacks = "jpegtran is not installed"
        if lacks:
            self.missing.append(Missing(side.table, side.row, lacks))
        return lacks is None

    def _python(self, side: Loading) -> Path:
        if not side.peer:
            return Path(sys.executable)
        # Absolute, but not resolved: an environment's Python recognises itself by this name.
        return self._options.peers.absolute() / side.peer / "bin" / "python"

    def _photo_job(self) -> dict[str, Any]:
        source = self._source("photos", self._options.photos, self._options.epoch)
        return {**self._job("photos", source), "size": 224, "batch_size": 4 if self._options.smoke else 64}

    def _thumb_job(self) -> dict[str, Any]:
        source = self._source("thumbs", self._options.thumbs, self._options.thumb_epoch)
        job = {"size": 32, "padding": 4, "batch_size": 16 if self._options.smoke else 512}
        statistics = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.247, 0.2435, 0.2616)}  # of CIFAR-10
        return {**self._job("thumbs", source), **job, **statistics}

    def _job(self, work: str, source: Path) -> dict[str, Any]:
        """Return the instructions that all sides share."""
        return {
            "work": work,
            "source": str(source),
            "scratch": str(self._folder),
            "workers": self._options.workers,
            "min_s": self._options.min_s,
            "max_side": None,
            "normalise": None,
        }

    def _source(self, work: str, images: Path | None, count: int) -> Path:
        """Return a folder with `count` images in class folders, made on first use."""
        folder = self._folder / work
        if folder.exists():
            return folder
        progress(f"making {count} {work}")
        if images is None:
            size = (32, 32) if work == "thumbs" else None
            make_folder(folder, count, classes=10, size=size, distinct_count=_DISTINCT[work])
        elif images.is_dir():
            copy_folder(images, folder, count)
        else:
            unpacked = self._folder / f"{work}-unpacked"
            unpack_tar(images, unpacked)
            copy_folder(unpacked, folder, count)
        origin = "made by the benchmark" if images is None else "given"
        self.data[work] = f"{count} {origin}, {folder_bytes(folder) // count} bytes each"
        return folder


if __name__ == "__main__":
    main()
