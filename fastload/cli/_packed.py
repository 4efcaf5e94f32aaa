"""Summary of packed datasets, as `fastload pack` and `fastload merge` print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastload.cli._output import note, show
from fastload.system.units import format_count, format_size

if TYPE_CHECKING:
    from fastload.packing.result import PackResult
    from fastload.shards.manifest import Skipped

_SHOWN_FAILURES = 10


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
