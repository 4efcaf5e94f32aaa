"""Places of a COCO dataset: the split of each JSON file, and the folder of its images."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

from fastload.sources.listing import Listing
from fastload.sources.malformed import malformed
from fastload.sources.splits import SPLITS

_WORD = re.compile(r"(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])", re.IGNORECASE)
_LIKE_A_SPLIT = re.compile(r"train|val|test", re.IGNORECASE)


def split_of(path: str) -> str:
    """Return the split that a file or folder, or else a folder above it, is named after; "" for none.

    >>> [split_of(path) for path in ("annotations/instances_val2017.json", "valid/x.json", "minitrain.json")]
    ['val', 'val', 'minitrain']
    """
    for name in reversed(path.split("/")):
        stem = os.path.splitext(name)[0]
        words = {SPLITS[word.lower()] for word in _WORD.findall(stem)}
        if len(words) == 1:
            return words.pop()
        if _LIKE_A_SPLIT.search(stem):
            return stem.removeprefix("instances_")
    return ""


def folder_in(listing: Listing, file: str, names: Sequence[str]) -> str | None:
    """Return the folder of a listing below which a JSON file's images lie; None if it holds none of them.

    `names` is a sample of their paths in that folder.
    """

    def has_file(folder: str, name: str) -> bool:
        path = f"{folder}/{name}" if folder else name
        return path.rpartition("/")[0] in listing.folders and listing.has_file(path)

    return _best(listing.shown(file), file, sorted(listing.folders), names, has_file)


def folder_near(file: str, names: Sequence[str]) -> str:
    """Return the absolute path of a folder near a JSON file below which its images lie.

    SourceError is raised if there is none.
    """
    own = os.path.dirname(file)
    above = os.path.dirname(own)
    folders = [own, above]
    for base in (own, above, os.path.join(own, "images"), os.path.join(above, "images")):
        folders += _folders_in(base)
    found = _best(
        file, file, [*dict.fromkeys(folders)], names, lambda *parts: os.path.isfile(os.path.join(*parts))
    )
    if found is None:
        must = f"have its images, such as {names[0]!r}, in a folder near it"
        raise malformed(file, must, f"none in {own}", "move it there")
    return found


def _best(
    where: str, file: str, folders: Sequence[str], names: Sequence[str], has_file: Callable[[str, str], bool]
) -> str | None:
    """Return the folder with the most images; on a tie, the one that the JSON file is named after."""
    if not names:
        return os.path.dirname(file)
    counts = {folder: sum(has_file(folder, name) for name in names) for folder in folders}
    most = max(counts.values())
    if not most:
        return None
    tied = [folder for folder in folders if counts[folder] == most]
    stem = os.path.splitext(os.path.basename(file))[0]
    lengths = {folder: len(name) for folder in tied if (name := os.path.basename(folder)) in stem}
    named = [folder for folder in tied if lengths.get(folder) and lengths[folder] == max(lengths.values())]
    split = split_of(_last_names(file))
    named = named or [folder for folder in tied if split and split_of(_last_names(folder)) == split]
    best, *others = named or tied
    if others:
        got = f"all in {best or '.'!r} and in {others[0] or '.'!r}"
        raise malformed(where, "have its images in one folder", got, "move the other folder elsewhere")
    return best


def _folders_in(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(
                entry.path for entry in entries if entry.is_dir() and not entry.name.startswith(".")
            )
    except OSError:
        return []


def _last_names(path: str) -> str:
    return "/".join(path.split("/")[-3:])
