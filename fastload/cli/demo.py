"""`fastload demo`: a race of torch's DataLoader against fastload's on generated photos or the user's own."""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import shlex
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastload.cli.output import ProgressDisplay, show, show_json
from fastload.cli.parser import ENCODE_NAMES, whole_number
from fastload.system import signals
from fastload.system.units import format_count, format_size

HELP = "measure how much faster fastload is on this machine, in under a minute"

EXIT_CODES = {
    "2": "nothing was done: an option or a path is invalid",
    "3": "an image is damaged, or a library fails",
    "130": "interrupted (Ctrl-C)",
}

_IMAGES = 400
# On two cores packing takes 3 s for 400 photos of 100 KB and 10 s for 32 of 12 megapixels.
_MOST_BYTES, _LEAST_IMAGES = 120_000_000, 32
# Raw pixels of 400 photos of 500 × 375 take 200 MB, of as many photos of 12 megapixels 14 GB.
_MOST_RAW_BYTES = 1_000_000_000
_FASTER = 1.05  # a smaller ratio is noise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    data_help = "your own images, in class folders or not (default: generated photos)"
    parser.add_argument("--data", metavar="FOLDER", help=data_help)
    number = functools.partial(parser.add_argument, type=whole_number, metavar="N")
    fewer = "of your own, evenly spaced and fewer if they are large"
    number("--images", help=f"number of images (default: {_IMAGES}; {fewer})")
    number("--workers", help="processes of each side (default: one per usable CPU, at most 8)")
    number("--rounds", default=5, help="turns of each side (default: 5)")
    parser.add_argument(
        "--encode",
        nargs="+",
        choices=ENCODE_NAMES,
        metavar="ENCODING",
        help=f"one or several encodings to pack: {', '.join(ENCODE_NAMES)} (default: auto raw); "
        "'fastload pack --help' explains them",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Race and print the result."""
    from fastload.bench import require_libraries

    require_libraries()
    with (
        signals.unwinding(),
        tempfile.TemporaryDirectory(prefix="fastload-demo-") as scratch,
        ProgressDisplay("", "steps", options.quiet) as display,
    ):
        result = _race(options, Path(scratch), display.stage)
    if options.json:
        show_json(result)
    else:
        _show_result(result, options.data)
    return 0


def _race(
    options: argparse.Namespace, scratch: Path, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Generate or choose images, pack them, race, and return the result that --json prints."""
    # Importing torch takes seconds on a slow machine: only when it is needed.
    import torch

    import fastload
    import fastload.transforms as T
    from fastload.bench import loading
    from fastload.bench.conditions import identified
    from fastload.packing.encoding.options import estimate_stats
    from fastload.sources.opening import open_class_folders

    folder = scratch / "photos"
    available = _fill(folder, options.data, options.images, progress)
    files = open_class_folders(os.fspath(folder))[""]
    notes, encodings = list(files.warnings), options.encode or ["auto", "raw"]
    raw_bytes = int(3 * estimate_stats([files], None).mean_pixels * len(files))
    if not options.encode and raw_bytes > _MOST_RAW_BYTES:
        encodings.remove("raw")
        size = format_size(raw_bytes)
        notes.append(f"raw is left out because it would take {size}: '--encode auto raw' includes it")
    packed: dict[str | None, fastload.PackResult] = {}
    for encode in dict.fromkeys(encodings):

        def advance(state: fastload.PackProgress, encode: str = encode) -> None:
            progress(f"packing: {encode}", state.records, state.total)

        result = fastload.pack(folder, scratch / f"photos-{encode}.fl", encode=encode, progress=advance)
        packed.setdefault(result.encoding, result)
        if encode == "auto":
            notes.append(f"'--encode auto' chose {result.encoding}: {result.reason}")

    transform = T.Compose([T.RandomResizedCrop(loading.IMAGE_SIDE), T.RandomHorizontalFlip()])
    datasets: list[tuple[str, torch.utils.data.Dataset[Any], fastload.PackResult | None]] = [
        ("torch DataLoader + PIL", loading.FilesByPil(files), None),
        ("fastload, same files", fastload.FolderDataset(folder, transform=transform), None),
    ]
    for encoding, result in packed.items():
        stored = fastload.PackedDataset(result.splits[0].path, transform=transform)
        datasets.append((f"fastload, packed {encoding}", stored, result))
    workers = options.workers or loading.default_workers()
    loaders: list[loading.TimedLoader] = []
    for name, dataset, _ in datasets:
        progress(f"starting: {name}", len(loaders), len(datasets))
        loader_class = fastload.DataLoader if loaders else torch.utils.data.DataLoader
        loaders.append(loading.TimedLoader(dataset, workers, loader_class))
    turn_images, total = loading.set_turns(loaders), options.rounds * len(loaders)
    turns, done = [loader.images_per_s for loader in loaders], itertools.count(1)
    rates = loading.take_turns(turns, options.rounds, lambda: progress("loading", next(done), total))
    medians = [statistics.median(values) for values in rates]
    sides = [
        {
            "name": name,
            "encoding": result and result.encoding,
            "size_bytes": result.size_bytes if result else files.size_bytes(),
            "pack_s": result and result.seconds,
            "startup_s": loader.startup_s,
            "images_per_s": median,
            "turns_images_per_s": list(values),
            "ratio": median / medians[0],  # to torch's DataLoader
        }
        for (name, _, result), loader, values, median in zip(datasets, loaders, rates, medians, strict=True)
    ]
    side = loading.IMAGE_SIDE
    return {
        **identified(),
        "images": {"count": len(files), "available": available, "size_bytes": files.size_bytes()},
        "work": f"random crop resized to {side}x{side}, antialiased; random flip; uint8",
        "workers": workers,
        "batch_size": loading.BATCH_SIZE,
        "turn_images": turn_images,
        "sides": sides,
        "notes": notes,
    }


def _fill(
    folder: Path, data: str | None, count: int | None, progress: Callable[[str, int, int], None]
) -> int | None:
    """Fill a folder with generated photos, or with links to the user's; return how many the user has."""
    from fastload.bench.images import link_images, list_images, make_files

    if data is None:
        make_files(
            folder, count or _IMAGES, progress=lambda done, total: progress("making photos", done, total)
        )
        return None
    images = list_images(data)
    mean_bytes = max(images.size_bytes() / len(images), 1)
    link_images(images, folder, count or min(_IMAGES, max(_LEAST_IMAGES, int(_MOST_BYTES / mean_bytes))))
    return len(images)


def _show_result(result: dict[str, Any], data: str | None) -> None:
    sides, images, machine, versions = (result[key] for key in ("sides", "images", "machine", "versions"))
    kind = "generated photos" if images["available"] is None else f"of {images['available']:,} images"
    mean_bytes = format_size(images["size_bytes"] / images["count"])
    cpus, workers = format_count(machine["usable_cpus"], "CPU"), format_count(result["workers"], "worker")
    show(f"fastload {versions['fastload']} and torch's DataLoader, loading the same images")
    show(f"{images['count']:,} {kind}, {mean_bytes} on average; {result['work']}")
    show(f"{machine['processor']}, {cpus}; {workers} for each side, batches of {result['batch_size']}")
    show(", ".join(f"{name} {version}" for name, version in versions.items() if name != "fastload"), "")
    for side in sides:
        rates, rate = side["turns_images_per_s"], f"{side['images_per_s']:,.0f}"
        spread, size = f"({min(rates):,.0f}–{max(rates):,.0f})", format_size(side["size_bytes"])
        show(f"{side['name']:<24} {size:>8} {rate:>7} images/s {spread:<15} {side['ratio']:4.1f} ×")
    files, *packed = sides[1:]
    gains = [f"{files['ratio']:.1f} × as fast from the same files"]
    gains += [f"{side['ratio']:.1f} × from packed {side['encoding']}" for side in packed]
    show("", f"Compared with torch's DataLoader, fastload loads {', '.join(gains)}.", "")
    show(*(f"- {remark}" for remark in _remarks(result)))
    show("", *(() if data else ("On your own images:    fastload demo --data FOLDER",)))
    show(f"To pack and use them:  fastload pack {shlex.quote(data or 'FOLDER')} photos.fl")


def _remarks(result: dict[str, Any]) -> Iterator[str]:
    """Yield how the figures were measured, and what they omit."""
    sides = result["sides"]
    turns = format_count(len(sides[0]["turns_images_per_s"]), "turn")
    startup_s = max(side["startup_s"] for side in sides)
    yield (
        f"images/s: median of {turns} of {result['turn_images']:,} images. The sides take turns; files are "
        "in memory, and decoded images are not cached. Each side does the same: read, decode (raw pixels "
        "need none), random crop, antialiased resize, flip, uint8 tensor, batch. The workers' start is not "
        f"counted: at most {startup_s:.1f} s for each side."
    )
    images, files_rate = result["images"]["count"], sides[1]["images_per_s"]
    for side in sides[2:]:
        text = f"Packing {side['encoding']} took {side['pack_s']:.1f} s, once"
        rate = side["images_per_s"]
        if rate < _FASTER * files_rate:
            yield f"{text}; it loads no faster than the same files here."
            continue
        epochs = math.ceil(side["pack_s"] / (images / files_rate - images / rate))
        yield f"{text}; compared with the same files, it pays off after {format_count(epochs, 'epoch')}."
    yield from result["notes"]
