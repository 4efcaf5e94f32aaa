"""Code shared by sources of records inside other programs' files (tar, Arrow, Parquet, LMDB, HDF5)."""

from __future__ import annotations

import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastload.contracts import SourceRecord
from fastload.shards.schema import Field
from fastload.sources.file_source import ListedSource
from fastload.sources.files import unreadable
from fastload.sources.left_out import clutter_reason
from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import in_quotes, malformed
from fastload.sources.protocol import Claim, Reading, Source
from fastload.sources.splits import SPLITS, by_split, split_words

SHARD = Field("shard", "scalar", "int64", internal=True)
"""The number of the file that holds a record, by which `unpack` restores the files."""

_PART = re.compile(r"(.*?)([0-9]+)-of-([0-9]+)(?![0-9])")  # 00000-of-00002, as by Hugging Face and TensorFlow
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
        """Read one record; raise SourceError, naming file and record, if it cannot be read or has changed."""
        number = int(self.shard_of[index])
        path = self.files.path(number)
        try:
            status = os.stat(path)
        except OSError as error:
            raise unreadable(path, error) from error
        listed = int(self.files.sizes_bytes[number]), int(self.files.times_ns[number])
        if (status.st_size, status.st_mtime_ns) != listed:
            must = f"be as it was listed, with {listed[0]:,} bytes"
            raise malformed(path, must, f"a changed file of {status.st_size:,}", "list the source again")
        record = self.read_from(path, index)
        record.values |= {SHARD.name: number, **self.listed_values(index)}
        return record

    @abstractmethod
    def read_from(self, path: str, index: int) -> SourceRecord:
        """Read one record from its file, with the values that are not known from the listing."""


def claim_data_files(
    listing: Listing,
    suffixes: tuple[str, ...],
    list_records: Callable[[str, str, Mapping[str, Sequence[str]]], Mapping[str, Source]],
    folder: str = "",
) -> Claim | None:
    """Claim a folder of data files, or of folders of them that are named after splits.

    `list_records` lists their records, given the path for messages, the root, and the files by split.
    """
    found = _data_files(listing, suffixes, folder)
    if not found:
        return None

    def read() -> Reading:
        files = _data_files_by_split(listing.name, found)
        sources = list_records(listing.name, listing.root, files)
        next(iter(sources.values())).doubts = _gaps_in(listing.name, itertools.chain(*files.values()))
        return Reading(sources)

    return Claim(f"files such as {next(iter(found.values()))[0]}", read)


def _data_files(listing: Listing, suffixes: tuple[str, ...], folder: str) -> dict[str, list[str]]:
    """Return the data files in a listing by the folders that hold them: "", one of this name, or splits.

    None are returned if others lie elsewhere, or if there are images in several folders, or more than data
    files: an archive beside class folders is the download from which they were unpacked.
    """

    def in_folder(place: Folder) -> list[str]:
        names = [name for name in place.others_with(*suffixes) if not clutter_reason(name)]  # as `._x.tar` is
        return list(map(place.join, names))

    places = {"": listing.top}
    if not in_folder(listing.top):
        inner = [name for name in listing.top.visible if name == folder or name.lower() in SPLITS]
        places = {name: listing[name] for name in inner}
    found = {place: names for place, each in places.items() if (names := in_folder(each))}
    if len(found) > 1 and folder in found:
        return {}
    others = (each for each in listing.visible if each.path not in found)
    images = [len(each.images) for each in listing.visible if each.images]
    are_few = len(images) <= 1 and sum(images) <= sum(map(len, found.values()))
    return found if are_few and not any(map(in_folder, others)) else {}


def _gaps_in(where: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the doubt that files such as x-00000-of-00002.parquet lack others that their names state."""
    found: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, map(_PART.match, names)):
        found.setdefault((match[1], match[3]), set()).add(int(match[2]))
    missing = []
    for (start, count), known in found.items():
        first = int(int(count) in known)  # the number of the first file: 0, or seldom 1
        numbers = range(first, first + min(int(count), _MOST_FILES))
        missing += [f"{start}{number:0{len(count)}}-of-{count}" for number in numbers if number not in known]
    must = "have all files whose number their names state"
    step = "add them; or name the layout (--layout) to pack without them"
    return (str(malformed(where, must, f"none named {in_quotes(missing)}", step)),) if missing else ()


def _data_files_by_split(where: str, found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return data files by split: that of their folder, or the one that their names contain."""
    if all(folder.lower() in SPLITS for folder in found):
        return by_split(where, found)
    return files_by_split(where, itertools.chain(*found.values()))


def files_by_split(where: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the split that each contains, as in train-0001.tar and cats_validation_lmdb.

    All are under "" if none contains one, or if all contain the same. SourceError is raised if only some
    contain one, or if one contains several.

    >>> files_by_split("photos", ["cats-train-0.tar", "cats-val-0.tar"])
    {'train': ['cats-train-0.tar'], 'val': ['cats-val-0.tar']}
    """
    names = sorted(names)
    words = [{word[0] for word in split_words(os.path.basename(name))} for name in names]
    shared = set.intersection(*words) if words else set()
    found: dict[str, list[str]] = {}
    for name, remaining in zip(names, (each - shared for each in words), strict=True):
        if len(remaining) > 1:
            must, got = "name files after one split each", f"{name!r}, with {' and '.join(sorted(remaining))}"
            raise malformed(where, must, got, "rename it, or pack the files of each split by themselves")
        found.setdefault(next(iter(remaining), ""), []).append(name)
    if "" in found and len(found) > 1:
        must = "name all of its files after splits, or none"
        got = f"{found.pop('')[0]!r} beside {next(iter(found.values()))[0]!r}"
        raise malformed(where, must, got, "rename them, or pack the files of each split by themselves")
    return by_split(where, found)


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
