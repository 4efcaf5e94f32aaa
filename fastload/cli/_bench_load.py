"""`fastload bench load [FOLDER]` and `fastload bench gpu-feed [FOLDER]`: complete loaders on these images."""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path
from typing import Any

from fastload.cli._bench_output import add_shared_arguments, check_outputs, publish
from fastload.cli._parser import whole_number
from fastload.cli._progress import ProgressDisplay
from fastload.errors import OptionError
from fastload.system import signals

LOAD_HELP = (
    "how many images a second reach the training loop? torch's DataLoader, fastload and other libraries "
    "load the same images in turns"
)
FEED_HELP = "how long does the GPU wait for data? Each loader feeds a ResNet-18"


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench load`."""
    _add_loader_arguments(parser, "+")
    parser.set_defaults(device=None)
    parser.add_argument(
        "--image-size",
        type=whole_number,
        nargs="+",
        default=[None],
        metavar="N",
        help="shorter side to resize to first (default: unchanged)",
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
    parser.add_argument(
        "--device",
        default="cuda",
        help="the device that trains: cuda (default), cuda:1, …; cpu tries the code",
    )
    _add_loader_arguments(parser, 1)
    parser.set_defaults(image_size=[None], cache=["warm"], hard_links=False)


def _add_loader_arguments(parser: argparse.ArgumentParser, nargs: int | str) -> None:
    """Add the arguments of both comparisons; `nargs` is that of the conditions that may vary."""
    number: dict[str, Any] = {"type": whole_number, "nargs": nargs, "metavar": "N"}
    parser.add_argument("--images", default=[1000], help="images in the dataset (default: 1000)", **number)
    parser.add_argument(
        "--workers", help="processes of each loader (default: one per usable CPU, at most 8)", **number
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
    add_shared_arguments(parser)
    parser.set_defaults(measure=_run)


def _run(options: argparse.Namespace) -> int:
    """Compare loaders in every setting of the options; with a device, feed a training step there."""
    if options.device is not None:
        _check_device(options.device)
    check_outputs(options)
    if options.workdir is not None and not os.path.isdir(options.workdir):
        raise OptionError(f"--workdir must be an existing folder, got {options.workdir}")
    from fastload.bench import require_libraries

    require_libraries()
    from fastload.bench.load import compare_loading
    from fastload.bench.load_results import LoadSetting
    from fastload.bench.loading import default_workers
    from fastload.bench.sides import CHECKOUT, choose_sides, photo_sides, synthetic_side

    sides = choose_sides(photo_sides(), options.only, options.smoke)
    if options.device is not None:
        sides.insert(0, synthetic_side())
    images, given = options.images, {"batch_size": options.batch_size, "runs": options.runs, "min_s": 1.0}
    if options.smoke:
        images, given = [8], {"batch_size": 2, "runs": 1, "min_s": 0.01}
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
            device=options.device,
            peers=Path(options.peers or CHECKOUT / ".peers"),
            workdir=options.workdir,
            progress=display.stage,
        )
    from fastload.cli.report._loading import loading_document, loading_json

    publish(loading_document(bench), loading_json(bench), options)
    return 0


def _check_device(device: str) -> None:
    # Importing torch takes seconds on a slow machine: only when it is needed.
    import torch

    try:
        torch.zeros(1, device=device)
    except Exception as error:  # torch raises anything, AssertionError among it
        raise OptionError(
            f"--device must be a device that torch can use, got {device}: "
            "'--device cpu' tries the code, and 'fastload bench load' measures the loaders alone"
        ) from error
