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
- *torch DataLoader + torchvision.io*: torchvision's compiled decoder and its transforms on tensors.
- *WebDataset, LitData, MosaicML Streaming*: the files' bytes in their own containers, with their own shuffle,
  and the same OpenCV calls in the workers of torch's DataLoader, or of the subclass that they bring.
- *Grain, SPDL*: the files and the same OpenCV calls in their threads; their batches are NumPy arrays.
- *DALI*: its CPU pipeline on the files, in its own threads: once decoding whole images, once skipping what
  the crop does not need. Antialiased, triangular filter; chroma upsampled by copying (its default), which
  is faster and less accurate than in all others. Its batches are not converted to torch tensors.
- *FFCV*: `OrderOption.RANDOM`, `os_cache=True`, 3 batches ahead, everything compiled. Photos as JPEG of
  quality 90, and raw with the longer side at most 400; `INTER_AREA`, which is further from the antialiased
  reference than fastload (0.3–0.6 levels on average; fastload's differ by one at most). Thumbnails raw; as
  float32 once by its compiled NormalizeImage, and once by torch, as in its CIFAR-10 example.

fastload's sides are named by how the images are stored: the folder's files, also as a compiled ImageFolder
with torchvision's transforms; `keep`, their bytes; `tiled`,
their pixels; `jpeg`, re-encoded with quality 90; `yuv420` and `raw`, with the longer side at most 400 like
FFCV's. They are antialiased, except for "linear": `antialias=False`, OpenCV's `INTER_LINEAR`. They do without
the optional TurboJPEG, which decodes a crop's region of a plain JPEG, except for the rows named after it.

The ceiling is a process that runs only `cv2.imdecode` and the resize, one after the other, on crops that
were cut out beforehand (of files with tiles, only the tiles that the crop touches).

Reading it. `CPU` is the time of all processes of a side in an epoch: on a shared machine it is the steadier
measure. The first batch is timed from the beginning of the first epoch; workers start then, and FFCV
compiles. Memory is the most that all processes of a side had (PSS) in a turn after the timed ones. A side
that fails is listed with its message. The last table divides rates: of the medians, and of each single run;
below 1 is slower. CPU time and stored bytes are divided, too; there, below 1 is less. The rows with
`2 × cv2.imdecode and resize` show the share of two cores' ceiling that is reached, and the CPU time of an
image as a multiple of the ceiling's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _harness import (
    PEERS_OPTION,
    Key,
    Missing,
    Reading,
    Report,
    Table,
    folder_bytes,
    options_of,
    progress,
    publish,
    work_folder,
)
from _load_tables import CEILING, FLOATS, PHOTOS, SLUGS, THUMBS, comparisons, tables
from _loading import SideComparison, shared_job
from _loading_results import LoadSetting, SideResult
from _photos import copy_folder, make_folder, unpack_tar
from _sides import Side, choose_sides

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
        options.min_s = 0.01 if options.smoke else 1.0
    with work_folder(options) as folder:
        publish(measure(options, folder), options)


def measure(options: argparse.Namespace, folder: Path) -> Report:
    """Run the sides that the options select."""
    slug, _, names = (options.only or "").partition("/")
    if slug and slug not in SLUGS:
        sys.exit(f"--only must be one of {', '.join(SLUGS)}, or one and sides, got {options.only!r}")
    words = [word.strip() for word in names.split(",") if word]
    counts = {PHOTOS: options.epoch, CEILING: options.epoch}
    counts |= {THUMBS: options.thumb_epoch, FLOATS: options.thumb_epoch}
    readings: dict[Key, list[Reading]] = {}
    missing: list[Missing] = []
    versions: dict[str, str] = {}
    asked: list[str] = []
    bench = Bench(options, folder)
    for part in [slug] if slug else SLUGS:
        named = {title: sides for title, sides in tables().items() if title in SLUGS[part]}
        table_of = {side.name: title for title, sides in named.items() for side in sides}
        chosen = choose_sides([side for sides in named.values() for side in sides], words, options.smoke)
        comparison = bench.run(part, chosen)
        asked += dict.fromkeys(table_of[side.name] for side in chosen)
        for measured in comparison.measured:
            title = table_of[measured.name]
            readings[Key(title, measured.name)] = readings_of(measured, counts[title])
        missing += [Missing(table_of[each.name], each.name, each.reason) for each in comparison.missing]
        versions |= comparison.versions
    return Report(
        name="load",
        question=str(__doc__).partition("\n")[0],
        setting={**bench.data, "runs": options.runs, "workers": options.workers, "page cache": "warm"},
        tables=[Table(title, "images", counts[title]) for title in asked],
        readings=readings,
        missing=missing,
        versions=versions,
        comparisons=comparisons(options.workers),
    )


def readings_of(side: SideResult, count: int) -> list[Reading]:
    """Return the turns of a side, as the time of `count` images each."""
    return [
        Reading(
            turn.seconds * count / turn.samples,
            turn.cpu_s * count / turn.samples,
            side.stored_bytes,
            side.write_s,
            side.first_batch_s,
            side.memory_bytes,
        )
        for turn in side.turns
    ]


class Bench:
    """The images that the sides load, and their runs."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self.data: dict[str, str] = {}

    def run(self, part: str, sides: Sequence[Side]) -> SideComparison:
        """Let sides of one part take turns."""
        job = self._photo_job() if part == "photos" else self._thumb_job()
        comparison = SideComparison(sides, job, self._options.runs, self._options.peers)
        comparison.run(lambda stage, done, total: progress(f"{part}: {stage}, {done} of {total}"))
        return comparison

    def _photo_job(self) -> dict[str, Any]:
        source = self._source("photos", self._options.photos, self._options.epoch)
        return self._job(source, self._options.epoch, 4 if self._options.smoke else 64)

    def _thumb_job(self) -> dict[str, Any]:
        count = self._options.thumb_epoch
        source = self._source("thumbs", self._options.thumbs, count)
        job = {"work": "thumbs", "size": 32, "padding": 4}
        statistics = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.247, 0.2435, 0.2616)}  # of CIFAR-10
        return {**self._job(source, count, 16 if self._options.smoke else 512), **job, **statistics}

    def _job(self, source: Path, images: int, batch_size: int) -> dict[str, Any]:
        setting = LoadSetting(images, self._options.workers, None, "warm")
        return shared_job(source, self._folder, setting, batch_size, self._options.min_s)

    def _source(self, work: str, images: Path | None, count: int) -> Path:
        """Return a folder with `count` images in class folders, made on first use."""
        folder = self._folder / work
        if folder.exists():
            return folder
        progress(f"making {count} {work}")
        distinct = min(count, _DISTINCT[work])
        if images is None:
            size = (32, 32) if work == "thumbs" else None
            make_folder(folder, count, classes=10, size=size, distinct_count=distinct)
        elif images.is_dir():
            distinct = copy_folder(images, folder, count)
        else:
            unpacked = self._folder / f"{work}-unpacked"
            unpack_tar(images, unpacked)
            distinct = copy_folder(unpacked, folder, count)
        origin = "made by the benchmark" if images is None else "given"
        size_bytes = folder_bytes(folder) // count
        self.data[work] = f"{count} {origin} ({distinct} distinct), {size_bytes} bytes each"
        return folder


if __name__ == "__main__":
    main()
