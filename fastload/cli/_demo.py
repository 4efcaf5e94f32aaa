"""`fastload demo`: a race of torch's DataLoader against fastload's on generated photos or the user's own."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fastload.cli._parser import positive
from fastload.cli._progress import ProgressDisplay, format_count, format_size
from fastload.errors import DestinationError
from fastload.system import signals

HELP = "show on this machine, in under a minute, what fastload gains"

_IMAGES = 400
# On two cores packing takes 3 s for 400 photos of 100 KB and 10 s for 32 of 12 megapixels.
_MOST_BYTES, _LEAST_IMAGES = 120_000_000, 32
# Raw pixels of 400 photos of 500 × 375 take 200 MB, of as many photos of 12 megapixels 14 GB.
_MOST_RAW_BYTES = 1_000_000_000
_FASTER = 1.05  # a smaller ratio is noise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="your own images, in class folders or not (default: generated photos)",
    )
    parser.add_argument(
        "--images",
        type=positive,
        metavar="N",
        help=f"number of images (default: {_IMAGES}; of your own, evenly spaced and fewer if they are large)",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="processes of each side (default: one per usable CPU, at most 8)",
    )
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="turns of each side (default: 5)"
    )
    parser.add_argument(
        "--encode",
        nargs="+",
        choices=("auto", "keep", "tiled", "jpeg", "yuv420", "raw"),
        metavar="ENCODING",
        help="one or several encodings to pack: auto, keep, tiled, jpeg, yuv420, raw (default: auto raw); "
        "'fastload pack --help' explains them",
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="keep the photos and the packed datasets in a new folder (default: removed at the end)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Race and print the result."""
    from fastload.bench.decoding import require_libraries

    require_libraries("the demo needs Pillow, which decodes for torch's DataLoader")
    with signals.unwinding(), ExitStack() as stack:
        if options.keep:
            place = Path(options.keep)
            if place.exists() and (not place.is_dir() or any(place.iterdir())):
                raise DestinationError(f"{place}: must be a new or an empty folder: choose another --keep")
            place.mkdir(parents=True, exist_ok=True)
        else:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastload-demo-")))
        display = stack.enter_context(ProgressDisplay("", "steps", options.quiet))
        result = _race(options, place, display.stage)
    if options.json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
        return 0
    _print(result)
    if options.keep:
        print(f"\nKept in {options.keep}: {', '.join(sorted(os.listdir(options.keep)))}")
    return 0


def _race(
    options: argparse.Namespace, place: Path, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Generate or choose images, pack them, race, and return the result as JSON."""
    # Importing torch takes seconds on a slow machine: only when it is needed.
    import PIL
    import torch

    import fastload
    import fastload.transforms as T
    from fastload.bench import loading, race
    from fastload.images.opencv import cv2
    from fastload.packing.choose import estimate_stats
    from fastload.sources.folder import list_folder
    from fastload.system.cpus import cpu_name, usable_cpus

    folder, available = _images(options, place / "photos", progress)
    files = list_folder(os.fspath(folder))[""]
    notes = list(files.warnings)
    encodings = options.encode or ["auto", "raw"]
    raw_bytes = int(3 * estimate_stats(files, None).mean_pixels * len(files))
    if not options.encode and raw_bytes > _MOST_RAW_BYTES:
        encodings.remove("raw")
        size = format_size(raw_bytes)
        notes.append(f"raw is left out because it would take {size}: '--encode auto raw' includes it")

    transform = T.Compose([T.RandomResizedCrop(race.IMAGE_SIDE), T.RandomHorizontalFlip()])
    size_bytes = files.size_bytes()
    torch_loader = torch.utils.data.DataLoader
    sides = [
        race.Side("torch DataLoader + PIL", race.PilFolder(files), size_bytes, torch_loader),
        race.Side("fastload, same files", fastload.FolderDataset(folder, transform=transform), size_bytes),
    ]
    packed: dict[str, fastload.PackResult] = {}
    for encode in dict.fromkeys(encodings):

        def show(state: fastload.PackProgress, encode: str = encode) -> None:
            progress(f"packing: {encode}", state.records, state.total)

        result = fastload.pack(folder, place / f"photos-{encode}.fl", encode=encode, progress=show)
        packed.setdefault(result.encoding, result)
        if encode == "auto":
            notes.append(f"'--encode auto' chose {result.encoding}: {result.reason}")
    for name, result in packed.items():
        dataset = fastload.PackedDataset(result.splits[0].path, transform=transform)
        sides.append(race.Side(f"fastload, packed {name}", dataset, result.size_bytes, packed=result))

    workers = options.workers or race.default_workers()
    turn_images, results = race.race(sides, workers, options.rounds, progress)
    system = f"{platform.system()} {platform.release()}"
    side = race.IMAGE_SIDE
    return {
        "machine": {"cpu": cpu_name(), "cpus": usable_cpus(), "system": system},
        "versions": {
            "fastload": fastload.__version__,
            "Python": platform.python_version(),
            "torch": str(torch.__version__),
            "OpenCV": cv2.__version__,
            "Pillow": PIL.__version__,
        },
        "images": {
            "count": len(files),
            "available": available,
            "classes": len(files.classes),
            "size_bytes": size_bytes,
        },
        "work": f"random crop resized to {side}x{side}, antialiased; random flip; uint8",
        "cache": "warm",
        "workers": workers,
        "batch_size": race.BATCH_SIZE,
        "seed": loading.SEED,
        "turn_images": turn_images,
        "sides": results,
        "notes": notes,
    }


def _images(
    options: argparse.Namespace, folder: Path, progress: Callable[[str, int, int], None]
) -> tuple[Path, int | None]:
    """Return the folder to race with, and how many images the user's has; None for generated ones.

    It is the user's own if all its images are taken, else `folder`, filled with links or generated photos.
    """
    from fastload.bench.images import make_files
    from fastload.sources.folder import list_folder
    from fastload.sources.protocol import evenly_spaced

    if options.data is None:
        count = options.images or _IMAGES
        make_files(folder, count, progress=lambda done, total: progress("making photos", done, total))
        return folder, None
    split, source = next(iter(list_folder(options.data).items()))
    mean_bytes = max(source.size_bytes() / len(source), 1)
    wanted = options.images or min(_IMAGES, max(_LEAST_IMAGES, int(_MOST_BYTES / mean_bytes)))
    if len(source) <= wanted and not split:
        return Path(options.data), len(source)
    for index in evenly_spaced(len(source), wanted):
        link = folder / source.key(index)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.abspath(source.files.path(index)), link)
    return folder, len(source)


def _print(result: dict[str, Any]) -> None:
    sides, images, machine = result["sides"], result["images"], result["machine"]
    kind = "images" if images["available"] is not None else "generated photos"
    if images["available"] is not None and images["available"] > images["count"]:
        kind += f" (of {images['available']:,})"
    mean_bytes = format_size(images["size_bytes"] / images["count"])
    cpus, workers = format_count(machine["cpus"], "CPU"), format_count(result["workers"], "worker")
    others = (f"{name} {version}" for name, version in result["versions"].items() if name != "fastload")
    print(f"fastload {result['versions']['fastload']} and torch's DataLoader, loading the same images")
    print(f"{images['count']:,} {kind}, {mean_bytes} on average; {result['work']}")
    print(f"{machine['cpu']}, {cpus}; {workers} for each side, batches of {result['batch_size']}")
    print(", ".join(others), end="\n\n")
    for side in sides:
        rates, rate = side["loading"]["turns_images_per_s"], f"{side['loading']['images_per_s']:,.0f}"
        spread = f"({min(rates):,.0f}–{max(rates):,.0f})"
        size = format_size(side["size_bytes"])
        print(
            f"{side['name']:<24} {size:>8} {rate:>7} images/s {spread:<15} {side['loading']['ratio']:4.1f} ×"
        )
    files, *packed = sides[1:]
    gains = [f"{files['loading']['ratio']:.1f} × as fast from the same files"]
    gains += [f"{side['loading']['ratio']:.1f} × from packed {side['encoding']}" for side in packed]
    print(f"\nCompared with torch's DataLoader, fastload loads {', '.join(gains)}.\n")
    for remark in _remarks(result):
        print(f"- {remark}")
    print()
    if images["available"] is None:
        print("On your own images:  fastload demo --data FOLDER")
    print("To pack and use them:  fastload pack FOLDER photos.fl")


def _remarks(result: dict[str, Any]) -> Iterator[str]:
    """Yield how the figures were measured, and what they leave out."""
    sides = result["sides"]
    turns = format_count(len(sides[0]["loading"]["turns_images_per_s"]), "turn")
    yield (
        f"images/s: median of {turns} of {result['turn_images']:,} images. The sides take turns; workers are "
        "running, files are in memory, and nothing decoded is kept. Each side does the same: read, decode "
        "(raw pixels need none), random crop, antialiased resize, flip, uint8 tensor, batch."
    )
    startup_s = max(side["startup_s"] for side in sides)
    yield f"Not counted: starting the workers, at most {startup_s:.1f} s for each side."
    images, files_rate = result["images"]["count"], sides[1]["loading"]["images_per_s"]
    for side in sides[2:]:
        text = f"Packing {side['encoding']} took {side['pack_s']:.1f} s, once"
        rate = side["loading"]["images_per_s"]
        if rate < _FASTER * files_rate:
            yield f"{text}; it loads no faster than the same files here."
            continue
        epochs = math.ceil(side["pack_s"] / (images / files_rate - images / rate))
        yield f"{text}; compared with the same files, that pays after {format_count(epochs, 'epoch')}."
    yield from result["notes"]
