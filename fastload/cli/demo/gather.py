"""The visitor's own images, in place of made ones: no more of them than a demo has time for."""

from __future__ import annotations

import os
from pathlib import Path

from fastload.sources.files import FileSource
from fastload.sources.folder import list_folder

# On two cores packing takes about 3 s for 400 photos of 100 KB, and 10 s for 32 of 12 megapixels.
_MAX_BYTES = 120_000_000
_MIN_IMAGES = 32


def gather(data: str, count: int | None, most: int, links: Path) -> tuple[Path, int]:
    """Finds the images to race with.

    Args:
        data: A folder of class folders, of images, or of train, val and test (then its first).
        count: How many images to take, evenly spaced; None for as many as a demo has time for.
        most: How many that is at most.
        links: A folder that does not exist yet: where not all images are taken, it is made, with
            links to those that are.

    Returns:
        The folder that holds just the images to take, and how many `data` holds.

    Raises:
        SourceError: `data` is no folder of images.
    """
    split, source = next(iter(list_folder(data).items()))
    mean_bytes = max(source.size_bytes() / len(source), 1)
    wanted = count or min(most, max(_MIN_IMAGES, int(_MAX_BYTES / mean_bytes)))
    if len(source) <= wanted and not split:
        return Path(data), len(source)
    for index in source.sample(wanted):
        link = links / source.key(index)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(source.files.path(index), link)
    return links, len(source)


def listed(folder: Path) -> FileSource:
    """The images of a folder that is not split."""
    return list_folder(os.fspath(folder))[""]
