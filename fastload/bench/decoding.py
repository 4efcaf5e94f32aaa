"""`fastload bench decode`: PIL or OpenCV, operation by operation, on this machine and these images."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.bench.result import Comparison, DecodeBench, Library
from fastload.errors import LibraryMissingError, OptionError, ToolMissingError
from fastload.images.opencv import require_opencv
from fastload.system.cpus import usable_cpus

if TYPE_CHECKING:
    from fastload.bench.sides.side import Side

NEED = "the comparison needs Pillow, with which all others are compared"
IMAGES = 24
RUNS = 5
LOADER_RUNS = 3
"""The most turns of a DataLoader: each takes seconds, and starts processes."""

# How much longer a turn of a DataLoader takes than one of an operation, its workers' start included.
_LOADER_STEPS = 20


def compare_decoding(
    folder: str | os.PathLike[str] | None = None,
    *,
    images: int = IMAGES,
    runs: int = RUNS,
    workers: int | None = None,
    is_smoke: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DecodeBench:
    """Measures every library that is installed.

    Args:
        folder: Images, an even sample of which is taken; None for pictures that are made.
        images: How many at most.
        runs: The turns of each side.
        workers: Processes of each DataLoader, 0 for none; None for one a usable CPU, at most 8.
        is_smoke: Whether to be quick rather than right: small pictures, short turns.
        progress: Called with how much of how much is done.

    Raises:
        OptionError: A number is too small.
        SourceError: The folder holds no images that can be read.
        LibraryMissingError: Pillow or OpenCV cannot be imported.
    """
    for name, value, least in (("images", images, 1), ("runs", runs, 1), ("workers", workers or 0, 0)):
        if value < least:
            raise OptionError(f"{name} must be at least {least}, got {value}")
    require_libraries(NEED)
    if workers is None:
        workers = min(usable_cpus(), 8)
    with tempfile.TemporaryDirectory(prefix="fastload-bench-") as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries warn of is not for who only measures them
        return _compare(folder, Path(place), images, runs, workers, is_smoke, progress)


def require_libraries(need: str) -> None:
    """Checks that Pillow and OpenCV are there, before work is begun that would fail for want of them.

    Args:
        need: Who needs Pillow, and for what.

    Raises:
        LibraryMissingError: One cannot be imported; says which command mends it.
    """
    require_opencv()
    try:
        importlib.import_module("PIL.Image")
    except ImportError as error:
        raise LibraryMissingError(
            f"{need}, and it cannot be imported ({error}): pip install --force-reinstall pillow"
            if importlib.util.find_spec("PIL")
            else f"{need}, and it is not installed: pip install pillow"
        ) from error


def expected_s(runs: int, workers: int | None) -> float:
    """About how long it will take: some 180 ways of operations, and 15 of a DataLoader's.

    Args:
        runs: As for `compare_decoding`.
        workers: As for `compare_decoding`.
    """
    loaded_s = 0.0 if workers == 0 else 15 * 1.5
    return 15 + runs * 180 * 0.05 + min(runs, LOADER_RUNS) * loaded_s


def _compare(
    source: str | os.PathLike[str] | None,
    folder: Path,
    images: int,
    runs: int,
    workers: int,
    is_smoke: bool,
    progress: Callable[[int, int], None],
) -> DecodeBench:
    from fastload.bench import loading, measure, pictures
    from fastload.bench.comparing import compare_operation, count_turns, ways_of
    from fastload.bench.operations import OPERATIONS

    available = None
    if source is None:
        pictures.make_files(folder, images, 0.2 if is_smoke else 1.0)
    else:
        available = pictures.copy_files(source, folder, images)
    read, described = pictures.read_pictures(folder, available)
    sides, libraries = _load_sides(described.side)

    alone_turns = count_turns(sides, runs)
    loaded: tuple[str, ...] = loading.PIPELINES if workers else ()
    loader_runs = min(runs, LOADER_RUNS)
    loaded_turns = loader_runs * sum(1 for key in loaded for _ in ways_of(key, sides))
    total = alone_turns + _LOADER_STEPS * loaded_turns
    done = 0

    def step(weight: int = 1) -> None:
        nonlocal done
        done += weight
        progress(min(done, total), total)

    comparisons: dict[str, Comparison] = {}
    with measure.one_core():
        turn_s = 0.0 if is_smoke else measure.TURN_S
        for operation in OPERATIONS:
            comparisons[operation.key] = compare_operation(
                operation, sides, read, described.side, runs, step, turn_s
            )
        setting = loading.Setting(
            read, folder, described.side, workers, loader_runs, 0.01 if is_smoke else loading.TURN_S
        )
        for key in loaded:
            found = loading.compare_loading(comparisons[key], setting, lambda: step(_LOADER_STEPS))
            comparisons[found.key] = found
    if done < total:  # what failed took no turns
        progress(total, total)
    return DecodeBench(
        comparisons=tuple(comparisons.values()),
        libraries=tuple(libraries),
        pictures=described,
        processor=_processor(),
        usable_cpus=usable_cpus(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        runs=runs,
        loader_runs=loader_runs,
        workers=workers,
    )


def _load_sides(size: int) -> tuple[list[Side], list[Library]]:
    from fastload.bench.libraries import describe, describe_others
    from fastload.bench.sides import MODULES, load_side

    sides: list[Side] = []
    libraries: list[Library] = []
    for library in MODULES:
        try:
            sides.append(load_side(library, size))
        except ToolMissingError as error:
            libraries.append(describe(library, str(error)))
        else:
            libraries.append(describe(library))
    return sides, [*libraries, *describe_others()]


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
