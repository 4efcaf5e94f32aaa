"""`fastload demo`: makes photos, packs them, and races fastload against torch's own DataLoader."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from fastload.errors import DestinationError
from fastload.system import signals

HELP = "show on this machine, in under a minute, what fastload gains"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="your own images, in class folders or not (default: photos that are made for it)",
    )
    parser.add_argument(
        "--images",
        type=_positive,
        metavar="N",
        help="how many images (default: 400; of your own, evenly spaced and fewer if they are large)",
    )
    parser.add_argument(
        "--workers",
        type=_positive,
        metavar="N",
        help="processes of each side (default: one a usable CPU, at most 8)",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        metavar="N",
        help="turns of each side in which it only loads (default: 5, or 3 where they are long)",
    )
    parser.add_argument(
        "--steps",
        type=_count,
        metavar="N",
        help="training steps of each side, 0 for none (default: about 5 s of them, 6 to 90)",
    )
    parser.add_argument(
        "--encode",
        nargs="+",
        choices=("auto", "keep", "tiled", "jpeg", "yuv420", "raw"),
        metavar="ENCODING",
        help="how to pack, one or several: auto, keep, tiled, jpeg, yuv420, raw "
        "(default: auto raw); 'fastload pack --help' explains them",
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="keep the photos and what was packed in a new folder (default: removed at the end)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _positive(text: str) -> int:
    value = _count(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Races and prints what came of it."""
    from fastload.bench.decoding import require_libraries

    require_libraries("the demo needs Pillow, which torch's side decodes with")
    # Importing torch takes seconds on a slow machine: not before it is needed.
    from fastload.cli.demo.contest import Wishes, hold_contest
    from fastload.cli.demo.show import as_json, print_contest
    from fastload.cli.demo.stages import Stages

    wishes = Wishes(
        data=options.data,
        images=options.images,
        workers=options.workers,
        rounds=options.rounds,
        steps=options.steps,
        encodings=None if options.encode is None else tuple(options.encode),
    )
    with signals.unwinding(), ExitStack() as stack:
        place = _new_folder(options.keep) if options.keep else _temporary_folder(stack)
        stages = stack.enter_context(Stages(options.quiet))
        contest = hold_contest(wishes, place, stages.update)
    if options.json:
        print(as_json(contest))
    else:
        print_contest(contest)
        if options.keep:
            print(f"\nKept in {options.keep}: {', '.join(sorted(os.listdir(options.keep)))}")
    return 0


def _new_folder(path: str) -> Path:
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DestinationError(
            f"{path}: must be a folder that does not exist yet, or is empty: choose another --keep"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _temporary_folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastload-demo-")))
