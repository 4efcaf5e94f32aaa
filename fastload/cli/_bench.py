"""`fastload bench …`: comparisons on this machine; this module has the one of decoding libraries."""

from __future__ import annotations

import argparse
from functools import partial

from fastload.cli import _bench_load
from fastload.cli._bench_output import add_shared_arguments, check_outputs, publish
from fastload.cli._parser import whole_number
from fastload.cli._progress import ProgressDisplay
from fastload.system import signals

HELP = "compare libraries on this machine: decoding, complete loaders, the feeding of a GPU"

_DECODE_HELP = (
    "PIL or OpenCV? Decode and transform your images with every installed library, in one or two minutes"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    load = benches.add_parser("load", help=_bench_load.LOAD_HELP, description=_bench_load.LOAD_HELP)
    _bench_load.add_load_arguments(load)
    feed = benches.add_parser("gpu-feed", help=_bench_load.FEED_HELP, description=_bench_load.FEED_HELP)
    _bench_load.add_feed_arguments(feed)
    decode = benches.add_parser("decode", help=_DECODE_HELP, description=_DECODE_HELP)
    decode.add_argument(
        "--images",
        type=whole_number,
        default=24,
        metavar="N",
        help="number of images, evenly spaced (default: 24)",
    )
    decode.add_argument(
        "--runs", type=whole_number, default=5, metavar="N", help="turns of each call (default: 5)"
    )
    decode.add_argument(
        "--workers",
        type=partial(whole_number, least=0),
        metavar="N",
        help="processes of each DataLoader, 0 for no DataLoader (default: one per usable CPU, at most 8)",
    )
    add_shared_arguments(decode)
    decode.set_defaults(measure=_run_decode)


def run(options: argparse.Namespace) -> int:
    """Run the requested comparison."""
    return int(options.measure(options))


def _run_decode(options: argparse.Namespace) -> int:
    """Compare libraries, operation by operation."""
    check_outputs(options)
    from fastload.bench import require_libraries

    require_libraries()
    # Importing torch takes seconds on a slow machine: only when it is needed.
    from fastload.bench.decoding import compare_decoding

    with signals.unwinding(), ProgressDisplay("", "steps", options.quiet) as display:
        bench = compare_decoding(
            options.folder,
            images=options.images,
            runs=options.runs,
            workers=options.workers,
            is_smoke=options.smoke,
            progress=display.stage,
        )
    from fastload.cli.report.decoding import decoding_document, decoding_json

    publish(decoding_document(bench), decoding_json(bench), options)
    return 0
