"""`fastload bench decode`: a comparison of decoding libraries on this machine."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from fastload.cli._output import lines_of, note, show
from fastload.cli._parser import check_writable, whole_number
from fastload.cli._progress import ProgressDisplay
from fastload.cli.report.document import Document
from fastload.system import signals

HELP = "compare libraries that decode and transform images on this machine"

_DECODE_HELP = (
    "PIL or OpenCV? Decode and transform your images with every installed library, in one or two minutes"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    benches = parser.add_subparsers(metavar="BENCH", required=True)
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
    # Here as well as on 'bench', because users write it after the comparison's name.
    decode.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the images, and the options of a comparison's output; those in benchmarks/ have them, too."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        help="your own images, in class folders or not (default: generated photo-like JPEGs)",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with bars and plots")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables as Markdown")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--smoke", action="store_true", help="only check that it runs: figures mean nothing")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
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


def check_outputs(options: argparse.Namespace) -> None:
    """Raise OptionError if a file cannot be written, before anything is measured."""
    for option in ("html", "markdown"):
        if getattr(options, option):
            check_writable(f"--{option}", getattr(options, option))


def publish(document: Document, result: str, options: argparse.Namespace) -> None:
    """Write the files that the options name; print the document, or the JSON of the result."""
    from fastload.cli.report._html import to_html
    from fastload.cli.report._markdown import to_markdown

    for render, file in ((to_html, options.html), (to_markdown, options.markdown)):
        if file:
            Path(file).write_text(render(document), encoding="utf-8")
            note(f"wrote {file}")
    show(*lines_of(result if options.json else to_markdown(document)))
    if sys.stdout.isatty() and not options.json:
        show("", f"{document.title} {document.answer[0]}")  # the beginning has scrolled away
