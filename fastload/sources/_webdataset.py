"""WebDataset's tar shards as sources: a .tar, a folder of them, or a brace pattern.

A sample's members lie one after another and share a key, the name up to the first dot of its last part; the
rest of each name is an extension. Shards named after splits, or in folders named after them, give one source
a split. The last part of an extension decides what a member becomes:

    jpg, png, …        the image; if samples hold several, each a field named by its extension
    cls                the label: an integer, or a class name
    cls2, id, index, … an int64 field, if every member is an integer
    txt, json, …       a text field
    npy                an array, if all have one dtype and one shape of rows
    anything else      a bytes field; nothing is unpickled

Every sample must have the members that the samples of its split have. Directories, links and members named
`__…__` are left out, as by webdataset.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import SourceError
from fastload.shards.schema import DTYPES, Field
from fastload.sources._columns import numbers_in
from fastload.sources._containers import ContainerSource, by_split, labels_of, require_decodable
from fastload.sources._tar import tar_members
from fastload.sources._walking import IMAGE_SUFFIXES, list_entries
from fastload.sources.files import NO_LABEL, NameTable, list_files, safe_key
from fastload.sources.left_out import LeftOutFiles, clutter_reason
from fastload.sources.protocol import SourceRecord

_SUFFIX = ".tar"
_IMAGES = tuple(suffix[1:] for suffix in (*IMAGE_SUFFIXES, ".gif", ".avif", ".jp2"))
# The extensions that webdataset's own decoder reads as integers and as text.
_INTEGERS = ("cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript", "json", "jsn")
_KEY = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_MOST_SHARDS = 1_000_000
_NPY_HEAD = 1 << 16  # the longest header of version 1.0

_SPLIT_FOLDERS = ("train", "val", "test")


def is_webdataset(path: str) -> bool:
    """Return True for a .tar file, a pattern of them, or a folder of them without images beside."""
    if path.lower().endswith(_SUFFIX):
        return os.path.isfile(path) or "{" in path
    if not os.path.isdir(path):
        return False
    folder = list_entries(path)
    tars = any(map(_is_tar, folder.files))
    if tars or folder.files:
        return tars and not any(name.lower().endswith(IMAGE_SUFFIXES) for name in folder.files)
    return any(
        any(map(_is_tar, list_entries(folder.join(name)).files))
        for name in folder.folders
        if name in _SPLIT_FOLDERS
    )


def open_webdataset(path: str) -> dict[str, TarSource]:
    """List the samples of tar shards by split; raise SourceError for damaged or unusable shards."""
    left_out = LeftOutFiles()
    root = path if os.path.isdir(path) else os.path.dirname(path)
    shards = _shards(path, left_out)
    listings = {split: _Listing(root, names, left_out) for split, names in shards.items()}
    are_labelled = any("cls" in listing.spans for listing in listings.values())
    cells = {split: listing.cells("cls") for split, listing in listings.items() if "cls" in listing.spans}
    labels, classes = labels_of([cell.rstrip("\n") for column in cells.values() for cell in column])
    sources, begin = {}, 0
    for number, (split, listing) in enumerate(listings.items()):
        count = len(cells.get(split, ()))
        own = labels[begin : begin + count] if count else np.full(len(listing.keys), NO_LABEL, np.int64)
        begin += count
        entries = left_out.finish() if number == len(listings) - 1 else ()
        has_label = are_labelled or len(listing.spans) == 1
        sources[split] = listing.source(path, own if has_label else None, classes, cells.get(split), entries)
    return sources


def _is_tar(name: str) -> bool:
    return name.lower().endswith(_SUFFIX) and clutter_reason(name) is None


def _shards(path: str, left_out: LeftOutFiles) -> dict[str, list[str]]:
    """Return the paths of the shards by split."""
    if not os.path.isdir(path):
        names = expand_braces(path)
        missing = [name for name in names if not os.path.isfile(name)]
        if missing:
            raise SourceError(f"{missing[0]}: must exist, got no such file: check the pattern {path!r}")
        return by_split(os.path.basename(name) for name in names) if len(names) == 1 else _by_name(path, names)
    folder = list_entries(path)
    found = {"": folder, **{name: list_entries(folder.join(name)) for name in folder.folders}}
    inner = [name for name in _SPLIT_FOLDERS if name in found and any(map(_is_tar, found[name].files))]
    if not any(map(_is_tar, folder.files)):
        shards = {name: [os.path.join(name, each) for each in sorted(found[name].files)] for name in inner}
    else:
        shards = by_split(filter(_is_tar, folder.files))
        inner = []
    for name in folder.files:
        if not _is_tar(name):
            left_out.add(name, clutter_reason(name) or "not a shard", is_clutter=bool(clutter_reason(name)))
    for name in folder.folders:
        if name not in inner:
            left_out.add(f"{name}/", "a folder beside the shards")
    return {split: list(filter(_is_tar, names)) for split, names in shards.items()}
