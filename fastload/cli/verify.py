"""`fastload verify PATH`: check every byte of packed datasets."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from fastload.cli.output import ProgressDisplay, note, show, show_json
from fastload.system.units import format_count, format_size

HELP = "check every byte of a packed dataset; exit code 1 if something is damaged"

EXIT_CODES = {
    "1": "damage was found",
    "2": "nothing was done: an option or a path is invalid",
    "3": "a server fails, or a process died",
    "130": "interrupted (Ctrl-C)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a packed dataset, its URL, or a folder with several")
    kinds, check_help = ("checksums", "pixels"), "checksums (the default), or pixels: decode every image, too"
    parser.add_argument("--check", choices=kinds, default=kinds[0], help=check_help)
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per usable CPU)")
    parser.add_argument("--quiet", action="store_true", help="print only damage")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Check, and return 1 if anything is damaged."""
    from fastload.packing.verify import verify
    from fastload.shards.manifest import packed_datasets
    from fastload.shards.remote import is_url
    from fastload.shards.remote_errors import shown

    results = {}
    for path in [options.path] if is_url(options.path) else packed_datasets(options.path):
        with ProgressDisplay("verifying", "B", options.quiet) as display:
            results[shown(path)] = verify(
                path, check=options.check, workers=options.workers, progress=display.update
            )
    code = int(any(result.damages for result in results.values()))
    if options.json:
        show_json([{"path": path, **asdict(result)} for path, result in results.items()])
        return code
    for path, result in results.items():
        for damage in result.damages:
            note(damage.message)
        if not options.quiet:
            damages = format_count(len(result.damages), "damaged place")
            checked = f"{format_count(result.records, 'record')}, {format_size(result.size_bytes)} checked"
            show(f"{path}: {checked}: {f'{damages} found' if result.damages else 'all is well'}")
    return code
