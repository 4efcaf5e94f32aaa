"""How many images a second do loaders deliver here, on images of your own?

Question: how many of your images a second do complete loaders deliver with each number of workers, size of
the images and state of the page cache? With `--device cuda`: how long does the GPU wait for each of them?

Method. Every loader is a process of its own, in its library's environment (`make peers`), and they take
turns. All load the images of FOLDER, or generated photo-like JPEGs, with the same flip and random crop to
224×224 pixels. Every combination of the given values is measured. With a device, each batch is a training
step of a ResNet-18 there, which needs torchvision, and one more side has its batches on the device already.

Reading it. Next to the rates are the times to open the dataset and to the first batch, the CPU time, the
memory of all processes, the size of the stored data and the time to write them. The share of the time that a
device waits follows from the rates with a loader and without one. A loader that fails is listed with its
message. With the defaults, a loader takes about 15 seconds. Nothing is recorded in results/.
"""

from __future__ import annotations

import argparse
import itertools
import os

import torch
from _harness import PEERS_OPTION
from _loading import compare_loading
from _loading_report import loading_document, loading_json
from _loading_results import LoadSetting
from _publishing import add_shared_arguments, check_outputs, publish
from _sides import choose_sides, photo_sides, synthetic_side

from fastload.bench import require_libraries
from fastload.bench.loading import default_workers
from fastload.cli.output import ProgressDisplay
from fastload.cli.parser import Parser, whole_number
from fastload.errors import FastloadError, OptionError
from fastload.system import signals


def main() -> None:
    parser = command_parser()
    options = parser.parse_args()
    try:
        compare(options)
    except FastloadError as error:
        parser.error(str(error))


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--device",
        help="train on this device with each batch: cuda, cuda:1, …; cpu tries the code (default: load only)",
    )
    several = {"nargs": "+", "metavar": "N", "type": whole_number}
    parser.add_argument("--images", default=[1000], help="images in the dataset (1000)", **several)
    parser.add_argument(
        "--workers", help="processes or threads of each loader (one per usable CPU, at most 8)", **several
    )
    parser.add_argument(
        "--image-size", default=[None], help="shorter side to resize to first (unchanged)", **several
    )
    parser.add_argument(
        "--cache",
        nargs="+",
        default=["warm"],
        choices=("warm", "cold"),
        help="state of the page cache: warm, cold or both (warm)",
    )
    parser.add_argument(
        "--hard-links", action="store_true", help="repeat images as hard links, for millions of them"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="only loaders whose names have one of these words, in any case",
    )
    one = {"metavar": "N", "type": whole_number}
    parser.add_argument("--batch-size", default=64, help="images in a batch (64)", **one)
    parser.add_argument("--runs", default=5, help="turns of each loader (5)", **one)
    parser.add_argument("--peers", **PEERS_OPTION)
    parser.add_argument("--workdir", metavar="FOLDER", help="a folder on the disk to use (the temporary one)")
    add_shared_arguments(parser)
    return parser


def compare(options: argparse.Namespace) -> None:
    """Compare loaders in every setting of the options, and print the result."""
    check(options)
    sides = choose_sides(photo_sides(), options.only, options.smoke)
    if options.device is not None:
        sides.insert(0, synthetic_side())
    images, given = options.images, {"batch_size": options.batch_size, "runs": options.runs, "min_s": 1.0}
    if options.smoke:
        images, given = [8], {"batch_size": 2, "runs": 1, "min_s": 0.01}
    axes = images, options.workers or [default_workers()], options.image_size, options.cache
    with signals.unwinding(), ProgressDisplay("", "steps", options.quiet) as display:
        bench = compare_loading(
            options.folder,
            sides,
            [LoadSetting(*values) for values in itertools.product(*axes)],
            **given,
            is_linked=options.hard_links,
            is_smoke=options.smoke,
            device=options.device,
            peers=options.peers,
            workdir=options.workdir,
            progress=display.stage,
        )
    publish(loading_document(bench), loading_json(bench), options)


def check(options: argparse.Namespace) -> None:
    """Raise FastloadError, before anything is measured, if the options ask for what this machine lacks."""
    check_outputs(options)
    if options.workdir is not None and not os.path.isdir(options.workdir):
        raise OptionError(f"--workdir must be an existing folder, got {options.workdir}")
    require_libraries()
    if options.device is not None:
        try:
            torch.zeros(1, device=options.device)
        except Exception as error:  # torch raises anything, AssertionError among it
            raise OptionError(
                f"--device must be a device that torch can use, got {options.device}: '--device cpu' tries "
                "the code, and without the option the loaders alone are measured"
            ) from error


if __name__ == "__main__":
    main()
