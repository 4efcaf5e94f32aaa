"""Records inside other programs' files (tar, Arrow, Parquet, LMDB, HDF5): the parts that these share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fastload.errors import SourceError
from fastload.images.formats import MOST_BYTES
from fastload.sources._malformed import malformed
from fastload.sources._walking import is_image, list_entries
from fastload.sources.files import FileList, digest_of
from fastload.sources.protocol import Source

# A split's name among the words of a file's name: train-0001.tar, cats_validation_lmdb.
_SPLIT = re.compile(r"(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])", re.IGNORECASE)

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_MOST_FILES = 1_000_000


@dataclass(eq=False, kw_only=True)
class ContainerSource(Source):
    """A `Source` of records in `files`, which were listed with their sizes and times."""

    files: FileList

    def fingerprint(self) -> str:
        """Return a digest of the files' names, sizes and times, and of the decisions about them."""
        return digest_of((self.kind, self.classes, self.fields, self.details, len(self)), [self.files])

    def size_bytes(self) -> int:
        """Return the size of all files."""
        return int(self.files.sizes_bytes.clip(min=0).sum())

    def unchanged(self, number: int) -> str:
        """Return a file's path; raise SourceError unless its size and time are as when it was listed."""
        path = self.files.path(number)
        try:
            status = os.stat(path)
        except OSError as error:
            raise malformed(path, "be a file that can be read", error.strerror, "restore it") from error
        listed = int(self.files.sizes_bytes[number]), int(self.files.times_ns[number])
        if (status.st_size, status.st_mtime_ns) != listed:
            must = f"be as it was listed, with {listed[0]:,} bytes"
            raise malformed(path, must, f"a changed file of {status.st_size:,}", "list the source again")
        return path


def holds_only(path: str, is_container: Callable[[str], bool]) -> bool:
    """Return True if a folder has files of many records, and neither images nor folders beside them.

    An archive beside class folders is that of their images, as it was downloaded.
    """
    folder = list_entries(path)
    has_images = any(map(is_image, folder.files))
    return not folder.folders and not has_images and any(map(is_container, folder.files))


def require_decodable(where: str, size_bytes: int) -> None:
    """Raise SourceError if an image has more bytes than can be decoded."""
    if size_bytes > MOST_BYTES:
        step = "it is not an image, or must be stored in a smaller form"
        raise malformed(where, f"have at most {MOST_BYTES:,} bytes to be decoded", f"{size_bytes:,}", step)


def by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the split (train, val, test) that is a word of each, all under "" without such words.

    >>> by_split(["cats-train-0.tar", "cats-val-0.tar"])
    {'train': ['cats-train-0.tar'], 'val': ['cats-val-0.tar']}
    """
    names = sorted(names)
    words = [_SPLIT.findall(os.path.basename(name)) for name in names]
    splits = {found[-1].lower() for found in words if found}
    if len(splits) < 2 or not all(words):
        return {"": names}
    return {
        split: [name for name, found in zip(names, words, strict=True) if found[-1].lower() == split]
        for split in ("train", "val", "test")
        if split in splits
    }


def is_pattern(path: str) -> bool:
    """Return True for the pattern of several files' names."""
    return expand_braces(path) != [path]


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern of ranges and lists stands for, as in webdataset and Bash.

    >>> expand_braces("{a,b}-{08..10}.tar")
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar', 'b-09.tar', 'b-10.tar']
    """
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    bounds = _RANGE.fullmatch(match[1])
    choices: Sequence[str] = match[1].split(",")
    if bounds is not None:
        numbers = range(int(bounds[1]), int(bounds[2]) + 1)
        if not 0 < len(numbers) <= _MOST_FILES:
            raise SourceError(
                f"{pattern}: must name 1 to {_MOST_FILES:,} files, got {len(numbers):,}: check its range"
            )
        choices = [f"{number:0{len(bounds[1])}d}" for number in numbers]
    rest = expand_braces(pattern[match.end() :])
    return [f"{pattern[: match.start()]}{choice}{tail}" for choice in choices for tail in rest]
