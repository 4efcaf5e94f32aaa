"""`fastload pack SOURCE DEST`: pack images into shards."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from fastload.cli._progress import ProgressDisplay, duration, rate_text
from fastload.system.units import format_count, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastload.packing.result import PackProgress, PackResult
    from fastload.shards.manifest import Skipped

HELP = "pack a dataset of images into shards"

_SHOWN_FAILURES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder of class folders, of train/ val/ test/ with class folders, or of images; a YOLO "
        "data.yaml, a COCO json, or the folder of a YOLO, COCO or Pascal VOC dataset, or of images with "
        "masks; or a CSV or TSV file (path, label, …)",
    )
    parser.add_argument("dest", metavar="DEST", help="the packed dataset to make, such as photos.fl")
    parser.add_argument(
        "--format", choices=("hdf5", "lmdb"), default="hdf5", help="the container (default: hdf5)"
    )
    parser.add_argument(
        "--encode",
        choices=("auto", "keep", "tiled", "jpeg", "yuv420", "raw"),
        default="auto",
        help="how images are stored. keep: the files' bytes. tiled: JPEGs rewritten without loss, so that "
        "crops decode faster. jpeg: re-encoded. yuv420: 1.5 bytes a pixel. raw: 3 bytes a pixel. "
        "auto (default): chosen by sizes and space, with the reason printed",
    )
    parser.add_argument(
        "--quality", type=int, default=90, metavar="Q", help="for --encode jpeg, 1 to 100 (default: 90)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per usable CPU)")
    parser.add_argument(
        "--shard-size",
        default="256MB",
        metavar="SIZE",
        help="size after which a new shard begins (default: 256MB)",
    )
    parser.add_argument(
        "--on-error",
        choices=("fail", "skip", "keep"),
        default="fail",
        help="treatment of unreadable images. fail (default): stop. skip: leave them out, and accept files "
        "that are not images. keep: store their bytes. The manifest lists all of them",
    )
    parser.add_argument(
        "--column",
        type=_column,
        action="append",
        metavar="NAME=KIND",
        help="kind of a table's column: text, int, float, or path for further images (for `label`, text "
        "means class names). Can be repeated (default: by the column's cells)",
    )
    parser.add_argument(
        "--allow-errors", action="store_true", help="exit with 0 even if files were skipped, kept or left out"
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an existing packed dataset when the new one is complete",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--max-side", type=int, metavar="PIXELS", help="shrink images whose longer side is larger"
    )
    size.add_argument(
        "--shorter-side", type=int, metavar="PIXELS", help="shrink images whose shorter side is larger"
    )
    size.add_argument("--size", type=_size, metavar="HxW", help="resize every image, to HxW or to a square")
    parser.add_argument(
        "--space", metavar="SIZE", help="space that --encode auto may fill (default: 4 × the source)"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    try:
        return int(height), int(width or height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must look like 256 or 240x320, got {text!r}") from None


def _column(text: str) -> tuple[str, str]:
    name, sign, kind = text.rpartition("=")
    if not name or not sign or not kind:
        raise argparse.ArgumentTypeError(f"must look like zip=text or mask=path, got {text!r}")
    return name, kind


def run(options: argparse.Namespace) -> int:
    """Pack, and return 1 if files were skipped, kept though unreadable, or left out."""
    from fastload.packing.job import pack

    with ProgressDisplay("packing", "records", options.quiet) as display:
        result = pack(
            options.source,
            options.dest,
            format=options.format,
            encode=options.encode,
            quality=options.quality,
            workers=options.workers,
            shard_size=options.shard_size,
            on_error=options.on_error,
            overwrite=options.overwrite,
            max_side=options.max_side,
            shorter_side=options.shorter_side,
            size=options.size,
            space=options.space,
            columns=dict(options.column or ()) or None,
            progress=lambda state: _show(display, state),
        )
    if options.json:
        print(json.dumps(asdict(result), indent=1, default=str))
    elif not options.quiet:
        _print_summary(result, options.on_error == "skip" or options.allow_errors)
    failures = sum(len(split.skipped) + len(split.kept) for split in result.splits)
    is_flawed = failures or (options.on_error != "skip" and _missed(result))
    return 1 if is_flawed and not options.allow_errors else 0


def _missed(result: PackResult) -> int:
    """Return the number of files left out that a user may miss."""
    return sum(entry.files for split in result.splits for entry in split.left_out if not entry.is_clutter)


def _show(display: ProgressDisplay, state: PackProgress) -> None:
    rate = rate_text(state.read_bytes / max(state.seconds, 1e-9), "B")
    split = f"  {state.split}" if state.split else ""
    display.update(state.records, state.total, f"  {rate}{split}", state.resumed)


def _print_summary(result: PackResult, is_accepted: bool) -> None:
    from fastload.shards.manifest import read_manifest
    from fastload.sources.left_out import describe_left_out

    for warning in result.warnings[:_SHOWN_FAILURES]:
        print(f"note: {warning}", file=sys.stderr)
    if len(result.warnings) > _SHOWN_FAILURES:
        print(f"note: … and {len(result.warnings) - _SHOWN_FAILURES:,} more of the kind", file=sys.stderr)
    for split in result.splits:
        _print_failures("skipped", split.skipped)
        _print_failures("kept, though unreadable", split.kept)
    for name, description in result.columns.items():
        print(f"{name}: {description}")
    print(f"encoding: {result.encoding}{f' ({result.reason})' if result.reason else ''}")
    if result.resumed:
        print(f"resumed: {format_count(result.resumed, 'record')} had been packed before")
    for split in result.splits:
        print(f"wrote {split.path}: {format_count(split.records, 'record')}, {format_size(split.size_bytes)}")
    for line in describe_left_out(entry for split in result.splits for entry in split.left_out):
        print(line)
    if _missed(result):
        hint = "" if is_accepted else "; --on-error skip accepts that with exit code 0"
        print(f"manifest.json lists the files that are left out{hint}")
    fresh = sum(split.records for split in result.splits) - result.resumed
    seconds = max(result.seconds, 1e-9)
    print(
        f"in {duration(result.seconds)}: {rate_text(max(fresh, 0) / seconds, 'records')}, "
        f"{rate_text(result.read_bytes / seconds, 'B')} read"
    )
    # Images of different sizes need a transform that crops them before they fit into one tensor, and so do
    # different numbers of objects.
    has_objects = any(field.is_of_objects for field in read_manifest(result.splits[0].path).fields)
    collate = "" if result.splits[0].image_shape and not has_objects else ", collate_fn=list"
    print(
        "\nfrom fastload import DataLoader, PackedDataset\n"
        f"dataset = PackedDataset({str(result.splits[0].path)!r})\n"
        f"loader = DataLoader(dataset, batch_size=64, shuffle=True{collate})"
    )


def _print_failures(kind: str, failures: Sequence[Skipped]) -> None:
    for failure in failures[:_SHOWN_FAILURES]:
        key = failure.key if failure.key.isprintable() else repr(failure.key)  # a newline breaks the line
        print(f"{kind}: {key}: {failure.reason}", file=sys.stderr)
    if len(failures) > _SHOWN_FAILURES:
        print(f"… and {len(failures) - _SHOWN_FAILURES:,} more, see manifest.json", file=sys.stderr)
