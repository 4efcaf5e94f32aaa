"""Files of a folder that are no records: why each was left out, listed within bounds, and told."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from fastload.shards.manifest import LeftOut

NO_IMAGE = "no image"
HIDDEN = "hidden"
SYSTEM = "of an operating system"
ABOUT = "about the dataset"

# A manifest is read whenever its dataset is opened; a thousand names for a reason take 0.1 MB of it.
MOST_LISTED = 1000
_MOST_KINDS = 100

_SYSTEM_NAMES = {".ds_store", "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "icon\r"}
_ABOUT = re.compile(
    r"(readme([_-]\w+)?|licen[cs]e([_-][\w.-]+)?|copying|copyright|notice|citation|authors|changelog|contributing)"
    r"(\.(md|markdown|txt|rst|html|pdf|cff|bib))?",
    re.IGNORECASE,
)
_KIND = re.compile(r"\.[A-Za-z][A-Za-z0-9_]{0,9}|\.[0-9]?[A-Za-z]{1,3}")


def clutter_reason(name: str) -> str | None:
    """Return why nobody misses a file of this name that is no image, or None where somebody might.

    Args:
        name: A file's or a folder's name, without its path.
    """
    if name.lower() in _SYSTEM_NAMES or name.startswith("._"):
        return SYSTEM
    if name.startswith("."):
        return HIDDEN
    return ABOUT if _ABOUT.fullmatch(name) else None


def kind_of(name: str) -> str:
    """Return the suffix of a name in lower case, such as `.txt`; empty where it has none."""
    suffix = os.path.splitext(name)[1]
    return suffix.lower() if _KIND.fullmatch(suffix) else ""


class LeftOutFiles:
    """A list of what is left out that stays short: of too many for a reason, kinds are listed instead.

    The entry of a kind has a pattern for a key, such as `**/*.txt`, and stands for all files of that
    suffix that are no records.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, bool], list[str]] = {}
        self._kinds: dict[tuple[str, bool], Counter[str]] = {}

    def add(self, key: str, reason: str, *, is_clutter: bool = False) -> None:
        """Add a file.

        Args:
            key: Its path relative to the source.
            reason: Why it is left out; the same words for all of the same reason.
            is_clutter: Whether nobody misses it.
        """
        kinds = self._kinds.setdefault((reason, is_clutter), Counter())
        kind = kind_of(key)
        kinds[kind if kind in kinds or len(kinds) < _MOST_KINDS else ""] += 1
        names = self._names.setdefault((reason, is_clutter), [])
        if len(names) <= MOST_LISTED:
            names.append(key)

    def finish(self) -> tuple[LeftOut, ...]:
        """Return all files so far, by reason and name."""
        listed: list[LeftOut] = []
        for (reason, is_clutter), names in self._names.items():
            if len(names) <= MOST_LISTED:
                listed += [LeftOut(name, reason, 1, is_clutter) for name in sorted(names)]
            else:
                kinds = sorted(self._kinds[reason, is_clutter].items())
                listed += [LeftOut(f"**/*{kind}", reason, count, is_clutter) for kind, count in kinds]
        return tuple(sorted(listed, key=lambda entry: (entry.is_clutter, entry.reason)))


def kinds_of(left_out: Iterable[LeftOut]) -> Counter[str]:
    """Return how many files of each suffix were left out."""
    kinds: Counter[str] = Counter()
    for entry in left_out:
        kinds[kind_of(entry.key)] += entry.files
    return kinds


def told(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Yield a line for each reason: how many files, and of which kinds."""
    by_reason: dict[str, list[LeftOut]] = {}
    for entry in left_out:
        by_reason.setdefault(entry.reason, []).append(entry)
    for reason, entries in by_reason.items():
        files = sum(entry.files for entry in entries)
        kinds = sorted(kinds_of(entries).items(), key=lambda kind: (-kind[1], kind[0]))
        shown = [f"{count:,} {kind or 'without a suffix'}" for kind, count in kinds[:5]]
        if len(kinds) > len(shown):
            shown.append(f"{sum(count for _, count in kinds[5:]):,} of other kinds")
        yield f"left out, {reason}: {files:,} {'file' if files == 1 else 'files'} ({', '.join(shown)})"
