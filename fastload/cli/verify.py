"""`fastload verify PATH`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from fastload.cli.progress import ProgressDisplay, count_text, reporter, size_text

HELP = "check every byte of a packed dataset; exit code 1 where something is damaged"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a packed dataset, or a folder with several")
    parser.add_argument(
        "--check",
        choices=("checksums", "pixels"),
        default="checksums",
        help="what to check: checksums (the default), or pixels, which decodes every image as well",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one a usable CPU)")
    parser.add_argument("--quiet", action="store_true", help="print damages alone")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace) -> int:
    """Checks; the exit code says whether all is well."""
    from fastload.packing.verify import verify
    from fastload.shards.manifest import packed_datasets

    results = {}
    for path in packed_datasets(options.path):
        with ProgressDisplay("verifying", "B", options.quiet) as display:
            results[path] = verify(
                path, check=options.check, workers=options.workers, progress=reporter(display)
            )
    if options.json:
        print(json.dumps([{"path": str(p)} | asdict(r) for p, r in results.items()], indent=1))
    else:
        for path, result in results.items():
            for damage in result.damages:
                print(damage.message, file=sys.stderr)
            if not options.quiet:
                verdict = (
                    f"{count_text(len(result.damages), 'damage')} found" if result.damages else "all is well"
                )
                size = size_text(result.size_bytes)
                print(f"{path}: {count_text(result.records, 'record')}, {size} checked: {verdict}")
    return 1 if any(result.damages for result in results.values()) else 0
