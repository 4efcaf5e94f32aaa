"""Complete loaders in turns, each in processes of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from _driver import Driver, LoadingTurn, size_on_disk
from _harness import conditions_with
from _loading_results import LoadBench, LoadSetting, MissingSide, SettingResult, SideResult
from _photos import make_folder, readable_images, repeat_images, resize_images
from _program import LoaderFailedError
from _sides import Side

from fastload.bench.loading import IMAGE_SIDE, OnProgress, take_turns
from fastload.errors import OptionError
from fastload.system import page_cache

# 400 photos are 160 MB of pixels: more than processors' caches hold.
_MOST_DISTINCT = 400
# Within a long epoch, a turn ends after this multiple of its least duration.
_LONGEST_TURN = 10


@dataclass(slots=True)
class SideComparison:
    """Measurements of several loaders that share a job; filled by `run`."""

    sides: Sequence[Side]
    job: Mapping[str, Any]
    runs: int
    peers: Path
    measured: list[SideResult] = field(default_factory=list)
    missing: list[MissingSide] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def run(self, progress: OnProgress) -> None:
        """Start every loader that can run here, and let them take turns.

        One that fails is listed with its message, in whichever turn it does.
        """
        with contextlib.ExitStack() as stack:
            drivers: dict[str, Driver] = {}
            for done, side in enumerate(self.sides):
                progress(f"getting ready: {side.name}", done, len(self.sides))
                if lacks := side.lacks(self.peers):
                    self.missing.append(MissingSide(side.name, lacks))
                    continue
                with self._listing_failure(side.name):
                    driver = Driver(side.python(self.peers), side.program, {**self.job, **side.job})
                    stack.callback(driver.close)
                    drivers[side.name] = driver
                    self.versions |= driver.versions
            done_turns, total = itertools.count(1), self.runs * len(drivers)
            turns = [partial(self._turn, name, driver) for name, driver in drivers.items()]
            found = take_turns(turns, self.runs, lambda: progress("loading", next(done_turns), total))
            for (name, driver), readings in zip(drivers.items(), found, strict=True):
                progress(f"reading memory: {name}", len(self.measured), len(drivers))
                self._conclude(name, driver, [turn for turn in readings if turn is not None])

    @contextlib.contextmanager
    def _listing_failure(self, name: str) -> Iterator[None]:
        try:
            yield
        except LoaderFailedError as error:
            self.missing.append(MissingSide(name, str(error)))

    def _turn(self, name: str, driver: Driver) -> LoadingTurn | None:
        if any(missing.name == name for missing in self.missing):
            return None
        with self._listing_failure(name):
            return driver.turn() if self.job["is_warm"] else driver.cold_turn()
        return None

    def _conclude(self, name: str, driver: Driver, turns: Sequence[LoadingTurn]) -> None:
        if len(turns) < self.runs:
            return
        with self._listing_failure(name):
            memory_bytes, memory_kind = driver.peak_memory()
            result = SideResult(
                name,
                tuple(turns),
                driver.open_s,
                driver.first_batch_s,
                driver.write_s,
                size_on_disk(driver.stored),
                memory_bytes,
                memory_kind,
            )
            self.measured.append(result)


def shared_job(
    source: Path, scratch: Path, setting: LoadSetting, batch_size: int, min_s: float
) -> dict[str, Any]:
    """Return the instructions that all loaders of photos share."""
    return {
        "work": "photos",
        "source": str(source),
        "scratch": str(scratch),
        "images": setting.images,
        "workers": setting.workers,
        "batch_size": batch_size,
        "size": IMAGE_SIDE,
        "max_side": None,
        "normalise": None,
        "device": None,
        "is_warm": setting.cache == "warm",
        "min_s": min_s,
        "max_s": _LONGEST_TURN * min_s,
    }


def compare_loading(
    folder: str | os.PathLike[str] | None,
    sides: Sequence[Side],
    settings: Sequence[LoadSetting],
    *,
    batch_size: int = 64,
    runs: int = 5,
    min_s: float = 1.0,
    is_linked: bool = False,
    is_smoke: bool = False,
    device: str | None = None,
    peers: Path,
    workdir: str | os.PathLike[str] | None = None,
    progress: OnProgress = lambda stage, done, total: None,
) -> LoadBench:
    """Measure loaders in each setting.

    Args:
        folder: Images to load, of the first split if there are several; None for generated photos.
        sides: The loaders.
        settings: Numbers of images and workers, sizes of images, states of the page cache.
        batch_size: Images in a batch.
        runs: Turns of each loader.
        min_s: Least seconds of a turn.
        is_linked: Repeat images as hard links rather than as copies.
        is_smoke: Mark the result: the arguments are those of a run that checks only that everything works.
        device: Train a ResNet-18 with each batch on this device; None to load only.
        peers: Folder with the environments of other libraries.
        workdir: Folder on the disk to use; None for the temporary folder.
        progress: Called with a stage, how much of it is done, and how much there is.

    Raises:
        SourceError: The folder holds no readable images.
        OptionError: The images do not fill a batch, the disk has no room for them, or pages of files cannot
            be dropped.
    """
    _check(settings, batch_size, is_linked)
    results: list[SettingResult] = []
    versions: dict[str, str] = {}
    for setting in settings:
        with tempfile.TemporaryDirectory(prefix="fastload-bench-", dir=workdir) as name:
            source = Path(name) / "photos"
            progress(f"writing {setting.images:,} images", 0, 1)
            image_bytes = _fill(folder, source, setting, is_linked)
            job = shared_job(source, Path(name), setting, batch_size, min_s) | {"device": device}
            comparison = SideComparison(sides, job, runs, peers)
            comparison.run(progress)
            versions |= comparison.versions
            results.append(
                SettingResult(setting, image_bytes, tuple(comparison.measured), tuple(comparison.missing))
            )
    return LoadBench(tuple(results), conditions_with(versions, is_smoke), runs, batch_size, min_s, device)


def _check(settings: Sequence[LoadSetting], batch_size: int, is_linked: bool) -> None:
    fewest = min(setting.images for setting in settings)
    if fewest < batch_size:
        raise OptionError(f"--images must be at least the batch size, {batch_size}, got {fewest}")
    if any(setting.cache == "cold" for setting in settings):
        if not page_cache.can_drop():
            raise OptionError("--cache cold needs posix_fadvise, which this system lacks: use --cache warm")
        if is_linked:
            raise OptionError(
                "--cache cold needs separate files: leave out --hard-links, or use --cache warm"
            )


def _fill(
    folder: str | os.PathLike[str] | None, photos: Path, setting: LoadSetting, is_linked: bool
) -> float:
    """Fill a folder with the images of a setting; return the mean size of a file."""
    made, resized = photos.with_name("made"), photos.with_name("resized")
    if folder is None:
        distinct = min(setting.images, _MOST_DISTINCT)
        make_folder(made, distinct, distinct_count=distinct)
        originals = sorted(made.glob("*/*"))
    else:
        originals = readable_images(folder, setting.images)
    if setting.shorter_side is not None:
        originals = resize_images(originals, resized, setting.shorter_side)
    image_bytes = sum(path.stat().st_size for path in originals) / len(originals)
    needed = image_bytes * setting.images
    if not is_linked and needed > shutil.disk_usage(photos.parent).free:
        raise OptionError(
            f"{setting.images:,} images need {needed / 1e9:,.0f} GB: name another disk with --workdir, or "
            "repeat them with --hard-links"
        )
    repeat_images(originals, photos, setting.images, is_linked)
    for temporary in (made, resized):
        shutil.rmtree(temporary, ignore_errors=True)
    return image_bytes
