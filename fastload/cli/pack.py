"""`fastload pack SOURCE DEST`: pack images, or records without any, into shards."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from inspect import signature
from typing import TYPE_CHECKING

from fastload.cli.output import ProgressDisplay, duration_text, note, rate_text, show, show_json
from fastload.cli.parser import ENCODE_NAMES, whole_number
from fastload.images.encoding_names import DTYPES, ENCODING_HELP
from fastload.system.units import format_count, format_size

if TYPE_CHECKING:
    from fastload.packing.result import PackProgress, PackResult
    from fastload.shards.manifest import Skipped

HELP = "pack a dataset of images, or of records without any, into shards"

EXIT_CODES = {
    "1": "finished, but files were skipped, kept or left out",
    "2": "nothing was done: an option, the source or the destination is invalid",
    "3": "stopped halfway: the disk is full, data is damaged, a server fails, or a process died",
    "130": "interrupted (Ctrl-C): the same command resumes after the last complete shard",
}

_SHOWN_FAILURES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder of class folders, of train/ val/ test/ with class folders, or of images; a CSV or TSV "
        "file (path, label, …); or a dataset in another layout, such as YOLO's: its folder, the file that "
        "describes it, or one that holds its records. Some layouts may be without images",
    )
    dest_help = "the packed dataset to make, such as photos.fl or s3://bucket/photos.fl"
    parser.add_argument("dest", metavar="DEST", help=dest_help)
    containers = ("hdf5", "lmdb")
    parser.add_argument("--format", choices=containers, default="hdf5", help="the container (default: hdf5)")
    parser.add_argument(
        "--encode",
        choices=ENCODE_NAMES,
        default="auto",
        help="how images are stored. "
        + " ".join(f"{name}: {text}." for name, text in ENCODING_HELP.items())
        + " auto (default): chosen by sizes and space, with the reason printed",
    )
    quality_help = "for --encode jpeg, 1 to 100 (default: 90)"
    shard_help = "target size of a shard (default: 256MB)"
    parser.add_argument("--quality", type=int, metavar="Q", help=quality_help)
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per usable CPU)")
    parser.add_argument("--shard-size", default="256MB", metavar="SIZE", help=shard_help)
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
        dest="columns",
        action="append",
        metavar="NAME=KIND",
        help="kind of a table's column: text, int, float, label for labels, or path for names of images (for "
        "`label`, text means class names). Can be repeated (default: by the column's cells)",
    )
    parser.add_argument(
        "--layout",
        metavar="NAME",
        help="the layout of a source that could be read in two ways, such as classes for class folders; an "
        "unknown name is answered by all of them (default: the one that the files show)",
    )
    size = parser.add_mutually_exclusive_group()
    side_help = "shrink images whose {} side is larger"
    size.add_argument("--max-side", type=int, metavar="PIXELS", help=side_help.format("longer"))
    size.add_argument("--shorter-side", type=int, metavar="PIXELS", help=side_help.format("shorter"))
    size.add_argument("--size", type=_size, metavar="HxW", help="resize every image, to HxW or to a square")
    space_help = "space that --encode auto may fill (default: 4 × the source)"
    parser.add_argument("--space", metavar="SIZE", help=space_help)
    parser.add_argument(
        "--convert",
        choices=DTYPES,
        metavar="DTYPE",
        help=f"convert images to {', '.join(DTYPES)}, by torchvision's rules for ToDtype(scale=True) "
        "(default: all must have the dtype of the first one)",
    )
    parser.add_argument(
        "--bands",
        type=lambda text: text.split(","),
        metavar="NAME,NAME",
        help="channels of images that are files of their own, such as red,nir for a_red.tif and a_nir.tif; "
        "in a table, columns of paths",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--on",
        metavar="ray[=ADDRESS]",
        help="pack on a Ray cluster: at ADDRESS, the one that Ray finds, or a new one on this machine",
    )
    where.add_argument(
        "--part",
        type=_part,
        metavar="N/COUNT",
        help="pack only the part N of COUNT, as in 3/16; 'fastload merge DEST' then makes the dataset of all",
    )
    add_result_options(parser)


def add_result_options(parser: argparse.ArgumentParser) -> None:
    """Add the options on the result, which `fastload merge` takes, too."""
    errors_help = "exit with 0 even if files were skipped, kept or left out"
    overwrite_help = "replace an existing packed dataset when the new one is complete"
    parser.add_argument("--allow-errors", action="store_true", help=errors_help)
    parser.add_argument("--overwrite", action="store_true", help=overwrite_help)
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


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    try:
        part = whole_number(number), whole_number(count)
    except argparse.ArgumentTypeError:
        part = (0, 0)
    if not 1 <= part[0] <= part[1]:
        raise argparse.ArgumentTypeError(f"must look like 3/16, from 1/16 to 16/16, got {text!r}")
    return part


def run(options: argparse.Namespace) -> int:
    """Pack, and return 1 if files were skipped, kept though unreadable, or left out."""
    from fastload.packing.job import pack

    options.columns = dict(options.columns or ()) or None
    given = {name: value for name, value in vars(options).items() if name in signature(pack).parameters}
    with ProgressDisplay("packing", "records", options.quiet) as display:
        result = pack(**given, progress=lambda state: _show(display, state))
    if options.json:
        show_json(asdict(result))
    elif not options.quiet:
        _print_summary(result, options.dest, options.part, options.on_error == "skip" or options.allow_errors)
    if options.allow_errors:
        return 0
    return exit_code(result, accepts_left_out=options.on_error == "skip")


def _show(display: ProgressDisplay, state: PackProgress) -> None:
    rate = rate_text(state.read_bytes / max(state.seconds, 1e-9), "B")
    split = f"  {state.split}" if state.split else ""
    display.update(state.records, state.total, f"  {rate}{split}", state.resumed)


def _print_summary(
    result: PackResult, dest: str, part: tuple[int, int] | None, accepts_left_out: bool
) -> None:
    for name, description in result.columns.items():
        show(f"{name}: {description}")
    if result.encoding:
        show(f"encoding: {result.encoding}{f' ({result.reason})' if result.reason else ''}")
    if result.resumed:
        show(f"resumed: {format_count(result.resumed, 'record')} had been packed before")
    if not result.splits:
        show("this part has no shards: there are more parts than shards")
    print_packed(result, accepts_left_out, "wrote" if part is None else f"part {part[0]}/{part[1]} of")
    fresh = max(result.records - result.resumed, 0)
    seconds = max(result.seconds, 1e-9)
    show(
        f"in {duration_text(result.seconds)}: {rate_text(fresh / seconds, 'records')}, "
        f"{rate_text(result.read_bytes / seconds, 'B')} read"
    )
    if part is None:
        print_loading(result)
    else:
        show(f"when all parts are packed, 'fastload merge {dest}' makes the dataset")


def exit_code(result: PackResult, *, accepts_left_out: bool) -> int:
    """Return 1 if files were skipped, kept though unreadable or, unless that is accepted, left out.

    So do doubts about the source.
    """
    failures = sum(len(split.skipped) + len(split.kept) for split in result.splits)
    return int(bool(failures or (not accepts_left_out and (_missed(result) or result.doubts))))


def print_packed(result: PackResult, accepts_left_out: bool, verb: str) -> None:
    """Print what was packed and what was not, a line for each dataset after the verb."""
    from fastload.sources.left_out import describe_left_out

    for doubt in result.doubts:
        note(f"attention: {doubt}")
    for warning in result.warnings[:_SHOWN_FAILURES]:
        note(f"note: {warning}")
    if len(result.warnings) > _SHOWN_FAILURES:
        note(f"note: … and {len(result.warnings) - _SHOWN_FAILURES:,} more of the kind")
    for split in result.splits:
        _print_failures("skipped", split.skipped)
        _print_failures("kept, though unreadable", split.kept)
    for split in result.splits:
        show(f"{verb} {split.path}: {format_count(split.records, 'record')}, {format_size(split.size_bytes)}")
    if (account := result.account) is not None:
        show(
            f"{format_count(account.files, 'file')} in the source: {account.records:,} of records, "
            f"{account.annotations:,} read with them, {account.left_out:,} left out"
            + (f" ({account.skipped:,} skipped)" if account.skipped else "")
        )
    show(*describe_left_out(entry for split in result.splits for entry in split.left_out))
    if _missed(result):
        hint = "" if accepts_left_out else "; --on-error skip accepts that with exit code 0"
        show(f"manifest.json lists the files that are left out{hint}")


def print_loading(result: PackResult) -> None:
    """Print the lines that load the first dataset."""
    first = result.splits[0]
    # Different numbers of objects do not fit into one tensor, nor do images of different sizes, unless a
    # transform crops them.
    is_uniform = first.image_shape is not None or not first.has_images
    collate = "collate_lists" if first.has_objects else "" if is_uniform else "list"
    names = "DataLoader, PackedDataset" + (", collate_lists" if first.has_objects else "")
    argument = f", collate_fn={collate}" if collate else ""
    show(
        "",
        f"from fastload import {names}",
        f"dataset = PackedDataset({str(first.path)!r})",
        f"loader = DataLoader(dataset, batch_size=64, shuffle=True{argument})",
    )


def _missed(result: PackResult) -> int:
    """Return the number of files left out that a user may miss."""
    return sum(entry.files for split in result.splits for entry in split.left_out if not entry.is_clutter)


def _print_failures(kind: str, failures: Sequence[Skipped]) -> None:
    for failure in failures[:_SHOWN_FAILURES]:
        note(f"{kind}: {failure.key}: {failure.reason}")
    if len(failures) > _SHOWN_FAILURES:
        note(f"… and {len(failures) - _SHOWN_FAILURES:,} more, see manifest.json")
