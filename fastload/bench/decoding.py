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
    from fastload.bench._peers import Peer

_PILLOW_NEEDED = "the comparison needs Pillow, the reference for all others"
_LOADER_RUNS = 3  # at most: each turn of a DataLoader takes seconds and starts processes
_LOADER_STEPS = 20  # the duration of a DataLoader's turn, with the start of its workers, in other turns


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
        folder: Images to sample evenly; None for generated ones.
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
    require_libraries(_PILLOW_NEEDED)
    # These import torch and Pillow, which takes seconds and may fail: only after the checks above.
    from fastload.bench import _comparison, loading
    from fastload.bench._operations import OPERATIONS
    from fastload.bench.images import copy_files, make_files, read_images

    workers = min(usable_cpus(), 8) if workers is None else workers
    loader_runs = min(runs, _LOADER_RUNS)
    pipelines: tuple[str, ...] = loading.PIPELINES if workers else ()
    found: dict[str, Comparison] = {}
    with tempfile.TemporaryDirectory(prefix="fastload-bench-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the libraries do not concern those who measure them
        place = Path(name)
        available = None
        if folder is None:
            make_files(place, images, 0.2 if is_smoke else 1.0)
        else:
            available = copy_files(folder, place, images)
        loaded, described = read_images(place, available)
        peers, libraries = _load_peers(described.side)

        keys = [key for peer in peers for key, _, _ in peer.calls]
        loader_turns = loader_runs * sum(key in pipelines for key in keys)
        total = runs * len(keys) + _LOADER_STEPS * loader_turns
        done = 0

        def step(weight: int = 1) -> None:
            nonlocal done
            done += weight
            progress(min(done, total), total)

        with _comparison.one_core():
            turn_s = 0.0 if is_smoke else _comparison.TURN_S
            for operation in OPERATIONS:
                found[operation.key] = _comparison.compare_operation(
                    operation, peers, loaded, described.side, runs, step, turn_s
                )
            turn_s = 0.01 if is_smoke else loading.TURN_S
            setup = loading.LoaderSetup(loaded, place, described.side, workers, loader_runs, turn_s)
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


def require_libraries(need: str) -> None:
    """Raise LibraryMissingError with `need` and a remedy unless Pillow and OpenCV can be imported."""
    require_opencv()
    try:
        importlib.import_module("PIL.Image")
    except ImportError as error:
        raise LibraryMissingError(
            f"{need}, and it cannot be imported ({error}): pip install --force-reinstall pillow"
            if importlib.util.find_spec("PIL")
            else f"{need}, and it is not installed: pip install pillow"
        ) from error


def _load_peers(size: int) -> tuple[list[Peer], list[Library]]:
    import numpy as np
    import torch

    from fastload.bench._peers import MODULES, load_peer

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
    libraries += [Library("NumPy", np.__version__), Library("torch", torch.__version__, simd=simd)]
    return peers, libraries
