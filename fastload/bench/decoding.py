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

from fastload.bench.results import Comparison, DecodeBench, Library
from fastload.errors import LibraryMissingError, OptionError
from fastload.images.opencv import require_opencv
from fastload.system.cpus import cpu_name, usable_cpus


def compare_decoding(
    folder: str | os.PathLike[str] | None = None,
    *,
    images: int = 24,
    runs: int = 5,
    workers: int | None = None,
    is_smoke: bool = False,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> DecodeBench:
    """Measure every installed library.

    Args:
        folder: Images to sample evenly, of the first split if there are several; None for generated ones.
        images: The number of images at most.
        runs: Turns of each call.
        workers: Processes of each DataLoader, 0 for no DataLoader; None for one per usable CPU, at most 8.
        is_smoke: Be quick rather than right: small images, short turns.
        progress: Called with a stage, the part of it that is done, and all of it.

    Raises:
        OptionError: A number is too small.
        SourceError: The folder holds no readable images.
        LibraryMissingError: Pillow or OpenCV cannot be imported.
    """
    for name, value, least in (("images", images, 1), ("runs", runs, 1), ("workers", workers or 0, 0)):
        if value < least:
            raise OptionError(f"{name} must be at least {least}, got {value}")
    require_libraries("the comparison needs Pillow, the reference for all others")
    # These import torch and Pillow, which takes seconds and may fail: only after the checks above.
    import torch

    from fastload.bench._comparison import compare_loading, compare_operation, one_core
    from fastload.bench._operations import OPERATIONS
    from fastload.bench._peers import MODULES, Peer, load_peer
    from fastload.bench.images import link_images, list_images, make_files, read_images
    from fastload.bench.loading import default_workers

    workers = default_workers(bytes_per_value=4) if workers is None else workers
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory(prefix="fastload-bench-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the libraries do not concern those who measure them
        place = Path(name)
        available = None
        if folder is None:
            make_files(place, images, 0.2 if is_smoke else 1.0)
        else:
            source = list_images(folder)
            available = len(source)
            link_images(source, place, images)
        loaded, described = read_images(place, available)
        found = [load_peer(library) for library in MODULES]
        peers = [each for each in found if isinstance(each, Peer)]
        turn = {"turn_s": 0.0} if is_smoke else {}
        with one_core():
            for operation in OPERATIONS:
                progress(f"comparing: {operation.key}", len(comparisons), len(OPERATIONS))
                comparisons.append(compare_operation(operation, peers, loaded, runs, **turn))
            if workers:
                [training] = [each for each in comparisons if each.key == "training"]
                comparisons.append(compare_loading(training, place, workers, runs, progress, **turn))
    libraries = [
        Library(each.library, each.version, each.jpeg) if isinstance(each, Peer) else each for each in found
    ]
    return DecodeBench(
        comparisons=tuple(comparisons),
        libraries=(*libraries, Library("torch", torch.__version__)),
        pictures=described,
        processor=cpu_name(),
        usable_cpus=usable_cpus(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        runs=runs,
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
