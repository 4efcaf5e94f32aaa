"""Code shared by sources of records inside other programs' files (tar, Arrow, Parquet, LMDB, HDF5)."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.shards.schema import Field
from fastload.sources.files import ListedSource, unreadable, value_at
from fastload.sources.left_out import LeftOutFiles, clutter_reason
from fastload.sources.malformed import malformed
from fastload.sources.protocol import SourceRecord
from fastload.sources.walking import is_image, list_entries

SHARD = Field("shard", "scalar", "int64", internal=True)
"""The number of the file that holds a record, by which `unpack` restores the files."""

# A split's name among the words of a file's name: train-0001.tar, cats_validation_lmdb.
_SPLIT = re.compile(r"(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])", re.IGNORECASE)

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_MOST_FILES = 1_000_000


@dataclass(eq=False, kw_only=True)
class ContainerSource(ListedSource):
    """A source of records in `files`; `shard_of` holds the number of each record's file."""

    shard_of: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.shard_of)

    def read(self, index: int) -> SourceRecord:
        """Read one record; raise SourceError, naming file and record, if it cannot be read."""
        number = int(self.shard_of[index])
        values = {name: value_at(column, index) for name, column in self.values.items()}
        record = self.read_from(self._unchanged(number), index)
        record.values |= {SHARD.name: number, **values}
        return record

    @abstractmethod
    def read_from(self, path: str, index: int) -> SourceRecord:
        """Read one record from its file, with the values that are not known from the listing."""

    def _unchanged(self, number: int) -> str:
        """Return a file's path; raise SourceError if its size or time has changed since the listing."""
        path = self.files.path(number)
        try:
            status = os.stat(path)
        except OSError as error:
            raise unreadable(path, error) from error
        listed = int(self.files.sizes_bytes[number]), int(self.files.times_ns[number])
        if (status.st_size, status.st_mtime_ns) != listed:
            must = f"be as it was listed, with {listed[0]:,} bytes"
            raise malformed(path, must, f"a changed file of {status.st_size:,}", "list the source again")
        return path


def is_data_file(name: str, suffixes: tuple[str, ...]) -> bool:
    """Return True for a data file (one of many records) by its suffix, but not for macOS's `._x.tar`."""
    return name.lower().endswith(suffixes) and clutter_reason(os.path.basename(name)) is None


def holds_only(path: str, suffixes: tuple[str, ...]) -> bool:
    """Return True if a folder has data files, and neither images nor folders beside them.

    An archive beside class folders is the download from which they were unpacked.
    """
    folder = list_entries(path)
    has_images = any(map(is_image, folder.files))
    return (
        not folder.folders and not has_images and any(is_data_file(each, suffixes) for each in folder.files)
    )


def list_data_files(
    path: str, suffixes: tuple[str, ...], inner: Iterable[str], left_out: LeftOutFiles, reason: str
) -> list[str]:
    """Return the data files in a folder or, without any, in its `inner` folders; add others to `left_out`."""
    folder = list_entries(path)
    names = [*folder.files]
    if not any(is_data_file(each, suffixes) for each in names):
        names += [f"{each}/{name}" for each in inner for name in list_entries(folder.join(each)).files]
    for name in names:
        if not is_data_file(name, suffixes):
            clutter = clutter_reason(os.path.basename(name))
            left_out.add(name, clutter or reason, is_clutter=clutter is not None)
    return [name for name in names if is_data_file(name, suffixes)]


def files_by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the split (train, val, test) that each contains.

    All are under "" if a name contains none, or if all contain the same.

    >>> files_by_split(["cats-train-0.tar", "cats-val-0.tar"])
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
            raise malformed(
                pattern, f"name 1 to {_MOST_FILES:,} files", f"{len(numbers):,}", "check its range"
            )
        choices = [f"{number:0{len(bounds[1])}d}" for number in numbers]
    rest = expand_braces(pattern[match.end() :])
    return [f"{pattern[: match.start()]}{choice}{tail}" for choice in choices for tail in rest]
