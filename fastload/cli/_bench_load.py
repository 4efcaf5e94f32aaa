"""`fastload bench load [FOLDER]` and `fastload bench gpu-feed [FOLDER]`: whole loaders on these images."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from fastload.cli._bench_output import add_output_arguments, check_outputs, publish
from fastload.cli._parser import whole_number
from fastload.cli._progress import ProgressDisplay
from fastload.errors import OptionError
from fastload.system import signals

LOAD_HELP = (
    "how many images a second reach the training loop? torch's DataLoader, fastload and other libraries "
    "load the same images in turns"
)
FEED_HELP = "how long does the GPU wait for data? Each loader feeds a ResNet-18"

_SMOKE: dict[str, Any] = {"images": 8, "batch_size": 2, "runs": 1, "min_s": 0.01}


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench load`."""
    _add_shared_arguments(parser)
    number: dict[str, Any] = {"type": whole_number, "nargs": "+", "metavar": "N"}
    parser.add_argument("--images", default=[1000], help="images in the dataset (default: 1000)", **number)
    parser.add_argument(
        "--workers", help="processes of each loader (default: one per usable CPU, at most 8)", **number
    )
    parser.add_argument(
        "--image-size", default=[None], help="shorter side to resize to first (default: unchanged)", **number
    )
    parser.add_argument(
        "--cache",
        nargs="+",
        default=["warm"],
        choices=("warm", "cold"),
        help="state of the page cache: warm, cold or both (default: warm)",
    )
    parser.add_argument(
        "--hard-links", action="store_true", help="repeat images as hard links, for millions of them"
    )


def add_feed_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench gpu-feed`."""
    _add_shared_arguments(parser)
    parser.add_argument(
        "--device",
        default="cuda",
        help="the device that trains: cuda (default), cuda:1, …; cpu tries the code",
    )
    parser.add_argument(
        "--images", type=whole_number, default=1000, metavar="N", help="images in the dataset (default: 1000)"
    )
    parser.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="processes of each loader (default: one per usable CPU, at most 8)",
    )


def _add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        help="your own images, in class folders or not (default: generated photo-like JPEGs)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="only loaders whose names have one of these words",
    )
    parser.add_argument(
        "--batch-size", type=whole_number, default=64, metavar="N", help="images in a batch (default: 64)"
    )
    parser.add_argument(
        "--runs", type=whole_number, default=5, metavar="N", help="turns of each loader (default: 5)"
    )
    parser.add_argument(
        "--peers",
        metavar="FOLDER",
        help="where 'make peers' put other libraries (default: .peers of the checkout)",
    )
    parser.add_argument(
        "--workdir", metavar="FOLDER", help="a folder on the disk to use (default: the temporary one)"
    )
    add_output_arguments(parser)


def run_load(options: argparse.Namespace) -> int:
    """Compare loaders in every setting that the options ask for."""
    return _measure(options, None)


def run_feed(options: argparse.Namespace) -> int:
    """Feed a training step, and show how long the device waited."""
    # Importing torch takes seconds on a slow machine: only when it is needed.
    import torch

    found = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if options.device not in ("cpu", *["cuda"][: len(found)], *found):
        raise OptionError(
            f"--device must be a CUDA device that torch can use ({', '.join(found) or 'none here'}), got "
            f"{options.device}: '--device cpu' tries the code, 'fastload bench load' the loaders alone"
        )
    options.images, options.image_size, options.cache = [options.images], [None], ["warm"]
    options.workers = options.workers and [options.workers]
    options.hard_links = False
    return _measure(options, options.device)


def _measure(options: argparse.Namespace, device: str | None) -> int:
    check_outputs(options)
    from fastload.bench import require_libraries

    require_libraries()
    from fastload.bench.load import compare_loading
    from fastload.bench.load_results import LoadSetting
    from fastload.bench.loading import default_workers
    from fastload.bench.sides import CHECKOUT, choose_sides, photo_sides, synthetic_side

    sides = choose_sides(photo_sides(), options.only, options.smoke)
    if device is not None:
        sides.insert(0, synthetic_side())
    given = {"batch_size": options.batch_size, "runs": options.runs, "min_s": 1.0}
    images = options.images
    if options.smoke:
        given = {name: _SMOKE[name] for name in given}
        images = [_SMOKE["images"]] * bool(images)
    axes = images, options.workers or [default_workers()], options.image_size, options.cache
    settings = [LoadSetting(*values) for values in itertools.product(*axes)]
    with signals.unwinding(), ProgressDisplay("", "steps", options.quiet) as display:
        bench = compare_loading(
            options.folder,
            sides,
            settings,
            **given,
            is_linked=options.hard_links,
            is_smoke=options.smoke,
            device=device,
            peers=Path(options.peers or CHECKOUT / ".peers"),
            workdir=options.workdir,
            progress=display.stage,
        )
    from fastload.cli.report._loading import loading_document, loading_json

    publish(loading_document(bench), loading_json(bench), options)
    return 0
