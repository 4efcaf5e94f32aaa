"""`fastload cache list|clear`: caches on disks and in memory, and copies of remote shards."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from fastload.cli.output import note, show, show_json
from fastload.errors import OptionError
from fastload.system.units import aligned, format_count, format_size

if TYPE_CHECKING:
    from fastload.system.cache_folder import CacheEntry, CacheFolder

HELP = "show or remove caches on the disk, in memory, and copies of remote shards"

EXIT_CODES = {
    "1": "a cache was not removed, because a program uses it",
    "2": "nothing was done: an option or a path is invalid",
    "130": "interrupted (Ctrl-C)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    action_help = "list (default): show all. clear: remove some"
    actions = ("list", "clear")
    parser.add_argument(
        "action", nargs="?", default="list", choices=actions, metavar="{list,clear}", help=action_help
    )
    names_help = "what to remove: names in the list, or URLs"
    # With a default, so that argparse does not call them required.
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help=names_help)
    parser.add_argument("--all", action="store_true", help="remove all that no running program uses")
    parser.add_argument(
        "--folder", help="the folder of fastload.Cache (default: the user's cache folder and /dev/shm)"
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(options: argparse.Namespace) -> int:
    """List or remove caches; return 1 if one could not be removed because it is in use."""
    from fastload.system.cache_folder import CacheFolder

    folders = [CacheFolder(options.folder)]
    if sys.platform == "linux":  # others have no caches in memory
        folders.append(CacheFolder.of_memory(options.folder or "/dev/shm"))
    found = [(folder, folder.entries()) for folder in folders]
    if options.action == "clear":
        return _clear([(folder, entry) for folder, entries in found for entry in entries], options)
    if options.names or options.all:
        raise OptionError("list shows all caches: NAME and --all are for clear")
    if options.json:
        show_json(
            [
                {
                    "path": str(folder.dataset(each.name)),
                    **asdict(each),
                    "reserved_bytes": each.reserved_bytes,
                }
                for folder, entries in found
                for each in entries
            ]
        )
    else:
        for number, (folder, entries) in enumerate(found):
            if entries or not number:
                _print_table(folder, entries)
    return 0


def _print_table(folder: CacheFolder, entries: Sequence[CacheEntry]) -> None:
    total = format_size(sum(entry.size_bytes for entry in entries))
    show(f"{folder.path}: {total}" if entries else f"{folder.path}: no caches")
    rows = [("name", "dataset", "samples", "size", "last used", "state")] if entries else []
    rows += [
        (
            entry.name,
            entry.dataset,
            f"{entry.samples:,}" if entry.samples == entry.total else f"{entry.samples:,} of {entry.total:,}",
            format_size(entry.size_bytes),
            _ago(time.time() - entry.used_s),
            _state(entry),
        )
        for entry in _merged(entries)
    ]
    show(*aligned(rows))


def _merged(entries: Sequence[CacheEntry]) -> list[CacheEntry]:
    """Return the entries, those of copies of one remote dataset's shards combined into one."""
    from fastload.shards.remote import is_url

    merged: dict[str, CacheEntry] = {}
    for entry in entries:
        key = entry.dataset if is_url(entry.dataset) else entry.name
        first = merged.setdefault(key, entry)
        if first is not entry:
            counts = ("samples", "total", "done", "size_bytes")
            sums = {name: getattr(first, name) + getattr(entry, name) for name in counts}
            state = first.state if entry.state == "complete" else entry.state
            merged[key] = replace(first, name="copies of shards", state=state, **sums)
    return list(merged.values())


def _ago(seconds: float) -> str:
    for unit_s, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit_s:
            return f"{format_count(int(seconds // unit_s), unit)} ago"
    return "just now"


def _state(entry: CacheEntry) -> str:
    is_partial = entry.state in ("filling", "unfinished")
    done = f", {entry.done / max(1, entry.samples):.0%}" if is_partial else ""
    users = f", of {format_count(len(entry.users), 'process', 'processes')}" if entry.users else ""
    return f"{entry.state}{done}{users}" + (f": {entry.stopped}" if entry.stopped else "")


def _clear(found: Sequence[tuple[CacheFolder, CacheEntry]], options: argparse.Namespace) -> int:
    if bool(options.names) == options.all:
        raise OptionError("clear needs the names of caches, as 'fastload cache list' shows them, or --all")
    for name in options.names:
        if not any(name in (entry.name, entry.dataset) for _, entry in found):
            known = f"there are {', '.join(entry.name for _, entry in found)}" if found else "there is none"
            raise OptionError(f"there is no cache {name!r}: {known}")
    code = 0
    for folder, entry in found:
        if not options.all and not {entry.name, entry.dataset}.intersection(options.names):
            continue
        if folder.remove(entry.name):
            show(f"removed {entry.name}: {format_size(entry.size_bytes)}")
        elif entry.state == "damaged":
            note(f"{entry.name} was not removed: {entry.stopped}")
            code = 1
        else:
            note(f"{entry.name} is in use by a running program and was not removed: end that program first")
            code = 1
    return code
