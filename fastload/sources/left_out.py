"""Files of a folder that are not records: the reasons, a list of bounded length, and a summary."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from fastload.shards.manifest import LeftOut
from fastload.system.units import format_count

NO_IMAGE = "not an image"
HIDDEN = "hidden"
SYSTEM = "system file"
ABOUT = "about the dataset"

# A manifest is read whenever its dataset is opened; a thousand names take 0.1 MB of it.
MOST_LISTED = 1000
_MOST_SUFFIXES = 100

_SYSTEM_NAMES = {".ds_store", "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "icon\r"}
_ABOUT = re.compile(
    r"(readme([_-]\w+|\.(roboflow|dataset))?|licen[cs]e([_-](mit|apache|bsd|gpl|lgpl|mpl|cc)[\w.-]*)?|copying|copyright|notice|citation|authors|changelog|contributing)"
    r"(\.(md|markdown|txt|rst|html|pdf|cff|bib))?",
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9_]{0,9}|\.[0-9]?[A-Za-z]{1,3}")


def clutter_reason(name: str) -> str | None:
    """Return the reason why a file or folder of this name is clutter, or None if it is not."""
    if name.lower() in _SYSTEM_NAMES or name.startswith("._"):
        return SYSTEM
    if name.startswith("."):
        return HIDDEN
    return ABOUT if _ABOUT.fullmatch(name) else None


class LeftOutFiles:
    """List of left-out files; too many with one reason are counted by suffix instead, as `**/*.txt`."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bool], tuple[list[str], Counter[str]]] = {}

    def add(self, key: str, reason: str, *, is_clutter: bool = False) -> None:
        """Add a file by its path relative to the source; `is_clutter` if no user would want it packed."""
        names, suffixes = self._found.setdefault((reason, is_clutter), ([], Counter()))
        suffix = _suffix_of(key)
        suffixes[suffix if suffix in suffixes or len(suffixes) < _MOST_SUFFIXES else ""] += 1
        if len(names) <= MOST_LISTED:
            names.append(key)

    def finish(self) -> tuple[LeftOut, ...]:
        """Return all files added so far, sorted by reason and name."""
        listed: list[LeftOut] = []
        for (reason, is_clutter), (names, suffixes) in self._found.items():
            if len(names) <= MOST_LISTED:
                listed += [LeftOut(name, reason, 1, is_clutter) for name in sorted(names)]
            else:
                counts = sorted(suffixes.items())
                listed += [LeftOut(f"**/*{suffix}", reason, count, is_clutter) for suffix, count in counts]
        return tuple(sorted(listed, key=lambda entry: (entry.is_clutter, entry.reason)))


def count_suffixes(left_out: Iterable[LeftOut]) -> Counter[str]:
    """Return the number of left-out files of each suffix."""
    suffixes: Counter[str] = Counter()
    for entry in left_out:
        suffixes[_suffix_of(entry.key)] += entry.files
    return suffixes


def describe_left_out(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Yield a line for each reason: the number of files, and their suffixes."""
    by_reason: dict[str, list[LeftOut]] = {}
    for entry in left_out:
        by_reason.setdefault(entry.reason, []).append(entry)
    for reason, entries in by_reason.items():
        files = sum(entry.files for entry in entries)
        suffixes = sorted(count_suffixes(entries).items(), key=lambda item: (-item[1], item[0]))
        shown = [f"{count:,} {suffix or 'without a suffix'}" for suffix, count in suffixes[:5]]
        if len(suffixes) > len(shown):
            shown.append(f"{sum(count for _, count in suffixes[5:]):,} of other kinds")
        yield f"left out, {reason}: {format_count(files, 'file')} ({', '.join(shown)})"


def _suffix_of(name: str) -> str:
    suffix = os.path.splitext(name)[1]
    return suffix.lower() if _SUFFIX.fullmatch(suffix) else ""
