"""`fastload merge DEST`: make a packed dataset of its parts."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from fastload.cli._output import lines_of, show
from fastload.cli._packed import exit_code, print_loading, print_packed

HELP = "make a packed dataset of the parts that 'fastload pack --part' has packed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dest", metavar="DEST", help="the destination of the parts")
    parser.add_argument(
        "--allow-errors", action="store_true", help="exit with 0 even if files were skipped, kept or left out"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing packed dataset")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Merge, and return 1 if files were skipped, kept though unreadable, or left out."""
    from fastload.packing.merge import merge

    result = merge(options.dest, overwrite=options.overwrite)
    if options.json:
        show(*lines_of(json.dumps(asdict(result), indent=1, default=str)))
    elif not options.quiet:
        print_packed(result, options.allow_errors, "wrote")
        print_loading(result)
    return 0 if options.allow_errors else exit_code(result, accepts_left_out=False)
