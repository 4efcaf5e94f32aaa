"""`fastload bench decode`: PIL or OpenCV, operation by operation, on this machine and these images."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fastload.bench.results import Comparison, DecodeBench, Library
from fastload.errors import LibraryMissingError, OptionError, ToolMissingError
from fastload.images.opencv import require_opencv
from fastload.system.cpus import cpu_name, usable_cpus

if TYPE_CHECKING:
    from fastload.bench.peers.peer import Peer

PILLOW_NEEDED = "the comparison needs Pillow, the reference for all others"
LOADER_RUNS = 3
"""Most turns of a DataLoader: each takes seconds and starts processes."""

# The duration of a DataLoader's turn, with the start of its workers, in turns of an operation.
_LOADER_STEPS = 20


def compare_decoding(
    folder: str | os.PathLike[str] | None = None,
    *,
    images: int = 24,
    runs: int = 5,
    workers: int | None = None,
    is_smoke: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DecodeBench:
    """Measure every installed library.

    Args:
        folder: Images, of which evenly spaced ones are taken; None for generated ones.
        images: The number of images at most.
        runs: Turns of each call.
        workers: Processes of each DataLoader, 0 for no DataLoader; None for one per usable CPU, at most 8.
        is_smoke: Be quick rather than right: small images, short turns.
        progress: Called with the number of turns done and in all.

    Raises:
        OptionError: A number is too small.
        SourceError: The folder holds no readable images.
        LibraryMissingError: Pillow or OpenCV cannot be imported.
    """
    for name, value, least in (("images", images, 1), ("runs", runs, 1), ("workers", workers or 0, 0)):
        if value < least:
            raise OptionError(f"{name} must be at least {least}, got {value}")
    require_libraries(PILLOW_NEEDED)
    if workers is None:
        workers = min(usable_cpus(), 8)
    with tempfile.TemporaryDirectory(prefix="fastload-bench-") as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the libraries do not concern those who measure them
        return _compare(folder, Path(place), images, runs, workers, is_smoke, progress)


def require_libraries(need: str) -> None:
    """Check that Pillow and OpenCV can be imported, before work starts that needs them.

    Raises:
        LibraryMissingError: One cannot be imported; the message is `need` and the command that helps.
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


def _compare(
    source: str | os.PathLike[str] | None,
    folder: Path,
    images: int,
    runs: int,
    workers: int,
    is_smoke: bool,
    progress: Callable[[int, int], None],
) -> DecodeBench:
    # These import torch and Pillow, which takes seconds and may fail: only after the checks above.
    from fastload.bench import comparison, loading
    from fastload.bench.images import copy_files, make_files, read_images
    from fastload.bench.operations import OPERATIONS

    available = None
    if source is None:
        make_files(folder, images, 0.2 if is_smoke else 1.0)
    else:
        available = copy_files(source, folder, images)
    loaded, described = read_images(folder, available)
    size = described.side
    peers, libraries = _load_peers(size)

    loader_runs = min(runs, LOADER_RUNS)
    pipelines: tuple[str, ...] = loading.PIPELINES if workers else ()
    total = comparison.count_turns([operation.key for operation in OPERATIONS], peers, runs)
    total += _LOADER_STEPS * comparison.count_turns(pipelines, peers, loader_runs)
    done = 0

    def step(weight: int = 1) -> None:
        nonlocal done
        done += weight
        progress(min(done, total), total)

    found: dict[str, Comparison] = {}
    with comparison.one_core():
        turn_s = 0.0 if is_smoke else comparison.TURN_S
        for operation in OPERATIONS:
            found[operation.key] = comparison.compare_operation(
                operation, peers, loaded, size, runs, step, turn_s
            )
        turn_s = 0.01 if is_smoke else loading.TURN_S
        setup = loading.LoaderSetup(loaded, folder, size, workers, loader_runs, turn_s)
        for key in pipelines:
            in_loader = loading.compare_loading(found[key], setup, lambda: step(_LOADER_STEPS))
            found[in_loader.key] = in_loader
    progress(total, total)  # calls that failed took no turns
    return DecodeBench(
        comparisons=tuple(found.values()),
        libraries=tuple(libraries),
        pictures=described,
        processor=cpu_name(),
        usable_cpus=usable_cpus(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        runs=runs,
        loader_runs=loader_runs,
        workers=workers,
    )


def _load_peers(size: int) -> tuple[list[Peer], list[Library]]:
    import numpy as np
    import torch

    from fastload.bench.peers import MODULES, load_peer

    peers: list[Peer] = []
    libraries: list[Library] = []
    for library in MODULES:
        try:
            peer = load_peer(library, size)
        except ToolMissingError as error:
            libraries.append(Library(library, None, reason=str(error)))
        else:
            peers.append(peer)
            libraries.append(Library(library, peer.version, peer.jpeg, peer.simd))
    simd = torch.backends.cpu.get_cpu_capability()
    return peers, [
        *libraries,
        Library("NumPy", np.__version__),
        Library("torch", torch.__version__, simd=simd),
    ]
