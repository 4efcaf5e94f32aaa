"""Recognition of Hugging Face datasets: folders of `save_to_disk`, and of Arrow and Parquet files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from fastload.sources.containers import data_files_by_split, find_data_files
from fastload.sources.files import read_text
from fastload.sources.huggingface.source import REWRITE, SUFFIXES, ArrowSource, list_rows
from fastload.sources.listing import Folder, Listing
from fastload.sources.malformed import explaining, malformed
from fastload.sources.protocol import Claim, LeftOutReason, Reading
from fastload.sources.splits import by_split

_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_TITLE = "a Hugging Face dataset"
_CACHE: LeftOutReason = "a cache of datasets", True


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder of `save_to_disk`, or one of Arrow and Parquet files alone, also in `data`."""
    names = {*listing.top.others}
    sign = next((name for name in (_DICT, _STATE) if name in names), "")
    if sign == _DICT or (sign and _INFO in names):
        return Claim("huggingface", _TITLE, sign, lambda: _saved(listing))
    found = find_data_files(listing, SUFFIXES, "data")
    if found is None:
        return None

    def read() -> Reading:
        data = data_files_by_split(listing.name, found)
        return Reading(list_rows(listing.name, listing.root, data))

    return Claim("huggingface", _TITLE, f"files such as {next(iter(found.values()))[0]}", read)


def open_file(path: str) -> Mapping[str, ArrowSource] | None:
    """List the rows of an .arrow or .parquet file."""
    if not path.lower().endswith(SUFFIXES):
        return None
    folder, name = os.path.split(os.path.abspath(path))
    return list_rows(path, folder, {"": [name]})


def _saved(listing: Listing) -> Reading:
    """Return the reading of a folder that `save_to_disk` wrote."""
    folders = {"": listing.top}
    if _DICT in listing.top.others:
        where = listing.absolute(_DICT)
        names = _json(where, "splits")
        if not isinstance(names, list) or not names or not all(name in listing.top.folders for name in names):
            raise malformed(where, "list the folders of the splits", repr(names), REWRITE)
        folders = by_split(where, {name: listing[name] for name in names})
    data = {split: _state_files(listing, folder) for split, folder in folders.items()}
    sidecars = [folder.join(name) for folder in folders.values() for name in (_STATE, _INFO)]
    sidecars += [] if "" in folders else [_DICT]
    caches = (
        folder.join(name)
        for folder in folders.values()
        for name in folder.others
        if name.startswith("cache-") and name.endswith(".arrow")
    )
    rows = list_rows(listing.name, listing.root, data)
    return Reading(rows, sidecars, dict.fromkeys(caches, _CACHE))


def _state_files(listing: Listing, folder: Folder) -> list[str]:
    """Return the data files that a folder states, in their order."""
    state = listing.absolute(folder.join(_STATE))
    entries = _json(state, "_data_files")
    try:
        return [folder.join(os.path.basename(entry["filename"])) for entry in entries]
    except (TypeError, KeyError) as error:
        raise malformed(state, "list the data files", repr(entries), REWRITE) from error


def _json(path: str, member: str) -> Any:
    errors = (ValueError, LookupError, TypeError, RecursionError)
    with explaining(errors, path, f"be JSON with a member {member!r}", REWRITE):
        return json.loads(read_text(path))[member]
