"""`fastload bench decode`: a comparison of decoding libraries on this machine."""

from __future__ import annotations

import argparse

from fastload.cli._output import ProgressDisplay, show, show_json
from fastload.cli._parser import whole_number
from fastload.system import signals

HELP = "compare libraries that decode and transform images on this machine"

_DECODE_HELP = "PIL or OpenCV? Decode and transform your images with every installed library, in a minute"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    decode = benches.add_parser("decode", help=_DECODE_HELP, description=_DECODE_HELP)
    decode.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        help="your own images, in class folders or not (default: generated photo-like JPEGs)",
    )
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
    decode.add_argument("--json", action="store_true", help="print the result as JSON")
    decode.add_argument("--smoke", action="store_true", help="only check that it runs: figures mean nothing")
    decode.add_argument("--quiet", action="store_true", help="show no progress")
    # Here as well as on 'bench', because users write it after the comparison's name.
    decode.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def run(options: argparse.Namespace) -> int:
    """Compare libraries, operation by operation."""
    from fastload.bench import require_libraries

    require_libraries()
    # Importing torch takes seconds on a slow machine: only when it is needed.
    from fastload.bench.decoding import compare_decoding
    from fastload.cli._decoding import decoding_content, decoding_lines

    with signals.unwinding(), ProgressDisplay("", "steps", options.quiet) as display:
        bench = compare_decoding(
            options.folder,
            images=options.images,
            runs=options.runs,
            is_smoke=options.smoke,
            progress=display.stage,
        )
    if options.json:
        show_json(decoding_content(bench))
    else:
        show(*decoding_lines(bench))
    return 0
