"""Files that belong together because their paths differ in the folder and the suffix alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastload.sources.malformed import malformed

FilesByStem = dict[str, list[str]]
"""Files by their stems: their paths below a folder without the suffix."""


def by_stem(paths: Iterable[str], folder: str = "") -> FilesByStem:
    """Return the paths of files below a folder by their stems.

    >>> by_stem(["images/a/0.jpg", "images/a/0.png"], "images")
    {'a/0': ['images/a/0.jpg', 'images/a/0.png']}
    """
    skipped = len(folder) + 1 if folder else 0
    found: FilesByStem = {}
    for path in paths:
        found.setdefault(os.path.splitext(path[skipped:])[0], []).append(path)
    return found


def one_of_each(
    files: Mapping[str, Sequence[str]], kind: str, shown: Callable[[str], str] = str
) -> dict[str, str]:
    """Return the only file of each stem; raise SourceError if a stem has two.

    `kind` names the files, as in "mask of its image", and `shown` returns a path as the user knows it.
    """
    for stem, (first, *others) in files.items():
        if others:
            step = f"keep one file named {stem!r}"
            raise malformed(shown(others[0]), f"be the only {kind}", f"{shown(first)} too", step)
    return {stem: path for stem, (path,) in files.items()}
