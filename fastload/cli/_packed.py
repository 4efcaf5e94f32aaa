"""Summary of packed datasets, as `fastload pack` and `fastload merge` print it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastload.system.units import format_count, format_size

if TYPE_CHECKING:
    from fastload.packing.result import PackResult
    from fastload.shards.manifest import Skipped

_SHOWN_FAILURES = 10


def exit_code(result: PackResult, *, accepts_left_out: bool) -> int:
    """Return 1 if files were skipped, kept though unreadable or, unless that is accepted, left out."""
    failures = sum(len(split.skipped) + len(split.kept) for split in result.splits)
    return int(bool(failures or (not accepts_left_out and _missed(result))))


def print_packed(result: PackResult, accepts_left_out: bool, verb: str) -> None:
    """Print what was packed and what was not, a line for each dataset after the verb."""
    from fastload.sources.left_out import describe_left_out

    for warning in result.warnings[:_SHOWN_FAILURES]:
        print(f"note: {warning}", file=sys.stderr)
    if len(result.warnings) > _SHOWN_FAILURES:
        print(f"note: … and {len(result.warnings) - _SHOWN_FAILURES:,} more of the kind", file=sys.stderr)
    for split in result.splits:
        _print_failures("skipped", split.skipped)
        _print_failures("kept, though unreadable", split.kept)
    for split in result.splits:
        print(
            f"{verb} {split.path}: {format_count(split.records, 'record')}, {format_size(split.size_bytes)}"
        )
    if (account := result.account) is not None:
        print(
            f"{format_count(account.files, 'file')} in the source: {account.records:,} of records, "
            f"{account.annotations:,} read with them, {account.left_out:,} left out"
        )
    for line in describe_left_out(entry for split in result.splits for entry in split.left_out):
        print(line)
    if _missed(result):
        hint = "" if accepts_left_out else "; --on-error skip accepts that with exit code 0"
        print(f"manifest.json lists the files that are left out{hint}")


def print_loading(result: PackResult) -> None:
    """Print the lines that load the first dataset."""
    first = result.splits[0]
    # Different numbers of objects do not fit into one tensor, nor do images of different sizes, unless a
    # transform crops them.
    is_uniform = first.image_shape is not None or not first.has_images
    collate = "collate_lists" if first.has_objects else "" if is_uniform else "list"
    names = "DataLoader, PackedDataset" + (", collate_lists" if first.has_objects else "")
    argument = f", collate_fn={collate}" if collate else ""
    print(
        f"\nfrom fastload import {names}\n"
        f"dataset = PackedDataset({str(first.path)!r})\n"
        f"loader = DataLoader(dataset, batch_size=64, shuffle=True{argument})"
    )


def _missed(result: PackResult) -> int:
    """Return the number of files left out that a user may miss."""
    return sum(entry.files for split in result.splits for entry in split.left_out if not entry.is_clutter)


def _print_failures(kind: str, failures: Sequence[Skipped]) -> None:
    for failure in failures[:_SHOWN_FAILURES]:
        key = failure.key if failure.key.isprintable() else repr(failure.key)  # a newline breaks the line
        print(f"{kind}: {key}: {failure.reason}", file=sys.stderr)
    if len(failures) > _SHOWN_FAILURES:
        print(f"… and {len(failures) - _SHOWN_FAILURES:,} more, see manifest.json", file=sys.stderr)
