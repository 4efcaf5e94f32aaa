"""`fastload unpack PATH DEST`: write packed datasets back as files."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from fastload.cli.output import ProgressDisplay, note, show, show_json
from fastload.system.units import format_count, format_size

HELP = "write a packed dataset back as folders of files"

EXIT_CODES = {
    "1": "finished, but damaged records were left out",
    "2": "nothing was done: an option or a path is invalid",
    "3": "stopped halfway: the disk is full, data is damaged, or a server fails",
    "130": "interrupted (Ctrl-C)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a packed dataset, its URL, or a folder with several")
    parser.add_argument("dest", metavar="DEST", help="a folder that does not exist yet, or is empty")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Unpack, and return 1 if records or fields were left out."""
    from fastload.packing.unpack import unpack

    with ProgressDisplay("unpacking", "records", options.quiet) as display:
        result = unpack(options.path, options.dest, progress=display.update)
    for message in (*result.damaged, *result.refused):
        note(f"left out: {message}")
    if result.unwritten:
        names = ", ".join(result.unwritten)
        note(f"left out: the fields {names}, which neither files nor a table can hold: read them in Python")
    if options.json:
        show_json(asdict(result))
    elif not options.quiet:
        size = format_size(result.size_bytes)
        show(f"wrote {options.dest}: {format_count(result.files, 'file')}, {size}")
        if result.table is not None:
            show(f"labels and further fields: {result.table}")
    return 1 if result.damaged or result.refused or result.unwritten else 0
