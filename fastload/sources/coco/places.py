"""Places of a COCO dataset: the split of each JSON file, and the folder of its images."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fastload.sources.listing import Listing
from fastload.sources.malformed import malformed
from fastload.sources.splits import SPLITS

_WORD = re.compile(r"(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])", re.IGNORECASE)
_LIKE_A_SPLIT = re.compile(r"train|val|test", re.IGNORECASE)
_LEVELS = 3  # folders from that of a JSON file upwards, in or below which its images are looked for


class ImagePlace(NamedTuple):
    """The absolute path of a folder of images, and the number of first parts of their names not in it."""

    folder: str
    skipped: int

    def name_of(self, name: str) -> str:
        """Return a name of the JSON file as a path in the folder."""
        return name.split("/", self.skipped)[-1]


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


def place_in(listing: Listing, file: str, names: Sequence[str]) -> ImagePlace | None:
    """Return the place in a listing where a JSON file's images lie; None if it holds none of them.

    `names` is a sample of the images' names in the JSON file.
    """

    def has_file(folder: str, name: str) -> bool:
        path = f"{folder}/{name}" if folder else name
        return os.path.dirname(path) in listing.folders and listing.has_file(path)

    found = _place(listing.shown(file), file, sorted(listing.folders), names, has_file)
    return found and found._replace(folder=listing.absolute(found.folder))


def place_near(file: str, names: Sequence[str]) -> ImagePlace:
    """Return the place near a JSON file; raise SourceError if there is none."""
    bases = [os.path.dirname(file)]
    while len(bases) < _LEVELS and os.path.dirname(bases[-1]) != bases[-1]:
        bases.append(os.path.dirname(bases[-1]))
    bases += [os.path.join(base, "images") for base in bases]
    folders = dict.fromkeys([*bases, *(inner for base in bases for inner in _folders_in(base))])
    found = _place(file, file, folders, names, lambda *parts: os.path.isfile(os.path.join(*parts)))
    if found is None:
        must = f"have its images, such as {names[0]!r}, in a folder near it"
        raise malformed(file, must, f"none in {bases[0]}", "move it there")
    return found


def _place(
    where: str, file: str, folders: Iterable[str], names: Sequence[str], has_file: Callable[[str, str], bool]
) -> ImagePlace | None:
    """Return the folder with the most images; names may begin with folders of another machine."""
    if not names:
        return ImagePlace(os.path.dirname(file), 0)
    for skipped in range(max(name.count("/") for name in names) + 1):
        own = [name.split("/", skipped)[-1] for name in names]
        counts = {folder: sum(has_file(folder, name) for name in own) for folder in folders}
        if most := max(counts.values()):
            tied = [folder for folder, count in counts.items() if count == most]
            return ImagePlace(_named_like(where, file, tied), skipped)
    return None


def _named_like(where: str, file: str, tied: Sequence[str]) -> str:
    """Return the folder that a JSON file is named after; raise SourceError if there are several."""
    stem = os.path.splitext(os.path.basename(file))[0]
    lengths = {folder: len(name) for folder in tied if (name := os.path.basename(folder)) and name in stem}
    named = [folder for folder, length in lengths.items() if length == max(lengths.values())]
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
