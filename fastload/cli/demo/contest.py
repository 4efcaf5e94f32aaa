"""The demo from end to end: images, packing, the race; what came of it is for others to print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fastload
from fastload.cli.demo.gather import gather, listed
from fastload.cli.demo.photos import make_photos
from fastload.cli.demo.race import Race, race
from fastload.cli.demo.setting import Images, Machine, default_workers, this_machine
from fastload.cli.demo.sides import Side, files_side, packed_side, torch_side
from fastload.packing.choose import look_at
from fastload.sources.files import FileSource

SEED = 0
DEFAULT_IMAGES = 400
# Raw pixels are raced too, unless they would fill the disk: they take 200 MB for 400 photos of
# 450 × 360, but 14 GB for as many of 12 megapixels.
_MOST_RAW_BYTES = 1_000_000_000

Progress = Callable[[str, int, int], None]
"""Called with what is being done, and how much of how much of it is done."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the visitor asked for; None leaves the choice to the demo.

    Attributes:
        data: A folder of images; None for made ones.
        images: How many images.
        workers: Processes of each side.
        rounds: Turns of each side that only load.
        steps: Training steps of each side.
        encodings: How to pack, in this order.
    """

    data: str | None
    images: int | None
    workers: int | None
    rounds: int | None
    steps: int | None
    encodings: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Contest:
    """All that the demo has to tell.

    Attributes:
        machine: What it ran on.
        images: What was loaded.
        workers: Processes of each side.
        threads: What the training computed with.
        race: What was measured.
        notes: What else the visitor should know, a sentence each.
    """

    machine: Machine
    images: Images
    workers: int
    threads: int
    race: Race
    notes: tuple[str, ...]


def hold_contest(wishes: Wishes, place: Path, progress: Progress) -> Contest:
    """Makes or finds images, packs them, and races.

    Args:
        wishes: What the visitor asked for.
        place: An empty folder to write to.
        progress: Called now and then.

    Raises:
        SourceError: The visitor's folder cannot be listed, or holds a file that is no image.
        ToolMissingError: An encoding was asked for whose tool is not installed.
    """
    machine = this_machine()
    folder, available = _images(wishes, place, progress)
    files = listed(folder)
    sides = [torch_side(files), files_side(files, folder)]
    packed, notes = _packed(wishes.encodings, files, folder, place, progress)
    notes += files.warnings
    if len(files.classes) < 2:
        notes.append("With fewer than two classes there is nothing to learn: loss and accuracy say nothing")
    workers = wishes.workers or default_workers()
    threads = max(1, machine.cpus - workers)
    measured = race(
        sides + packed,
        classes=len(files.classes),
        workers=workers,
        threads=threads,
        rounds=wishes.rounds,
        steps=wishes.steps,
        seed=SEED,
        progress=progress,
    )
    images = Images(len(files), available, len(files.classes), files.size_bytes())
    return Contest(machine, images, workers, threads, measured, tuple(notes))


def _images(wishes: Wishes, place: Path, progress: Progress) -> tuple[Path, int | None]:
    """The folder of images to race with, and how many the visitor has."""
    if wishes.data is not None:
        return gather(wishes.data, wishes.images, DEFAULT_IMAGES, place / "photos")
    count = wishes.images or DEFAULT_IMAGES
    make_photos(place / "photos", count, SEED, lambda done, total: progress("making photos", done, total))
    return place / "photos", None


def _packed(
    encodings: tuple[str, ...] | None,
    files: FileSource,
    folder: Path,
    place: Path,
    progress: Progress,
) -> tuple[list[Side], list[str]]:
    notes = []
    if encodings is None:
        raw_bytes = 3 * look_at(files, None).mean_pixels * len(files)
        encodings = ("auto", "raw") if raw_bytes <= _MOST_RAW_BYTES else ("auto",)
        if len(encodings) == 1:
            notes.append(
                f"raw pixels would take {raw_bytes / 1e9:.1f} GB, so they were left out: "
                "--encode auto raw has them in"
            )
    sides: dict[str, Side] = {}
    for encode in encodings:
        if encode in sides:
            continue
        show = functools.partial(_show_packing, progress, encode)
        result = fastload.pack(folder, place / f"photos-{encode}.fl", encode=encode, progress=show)
        sides.setdefault(result.encoding, packed_side(result))
        if encode == "auto":
            notes.append(f"'--encode auto' chose {result.encoding}: {result.reason}")
    return list(sides.values()), notes


def _show_packing(progress: Progress, encode: str, state: fastload.PackProgress) -> None:
    progress(f"packing: {encode}", state.records, state.total)
