"""`fastload merge DEST`: make a packed dataset of its parts."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from fastload.cli.output import show_json
from fastload.cli.pack import add_result_options, exit_code, print_loading, print_packed

HELP = "make a packed dataset of the parts that 'fastload pack --part' has packed"

EXIT_CODES = {
    "1": "finished, but files were skipped, kept or left out",
    "2": "nothing was done: an option or a path is invalid",
    "3": "parts are missing or damaged, or the disk is full",
    "130": "interrupted (Ctrl-C)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("dest", metavar="DEST", help="the destination of the parts")
    add_result_options(parser)


def run(options: argparse.Namespace) -> int:
    """Merge, and return 1 if files were skipped, kept though unreadable, or left out."""
    from fastload.packing.merge import merge

    result = merge(options.dest, overwrite=options.overwrite)
    if options.json:
        show_json(asdict(result))
    elif not options.quiet:
        print_packed(result, options.allow_errors, "wrote")
        print_loading(result)
    return 0 if options.allow_errors else exit_code(result, accepts_left_out=False)
