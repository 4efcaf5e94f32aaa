"""Recognition of LMDB databases and HDF5 files of other programs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fastload.sources.containers import files_by_split
from fastload.sources.databases.programs import BASICSR
from fastload.sources.databases.source import DatabaseSource, list_hdf5, list_lmdb
from fastload.sources.databases.storage import DATA
from fastload.sources.files import NO_LABEL
from fastload.sources.listing import Listing
from fastload.sources.protocol import Claim, LeftOutReason, Reading

_LSUN = re.compile(r"(.+)_(train|val|test)_lmdb")
_LOCK = "lock.mdb"
_LOCKED: LeftOutReason = "a lock of LMDB", True
_UNLABELLED = {"": NO_LABEL}


def recognise(listing: Listing) -> Claim | None:
    """Claim a folder that is an LMDB database, or the folder of LSUN's databases, by class and split."""
    if DATA in listing.top.others:
        return Claim("lmdb", "an LMDB database", DATA, lambda: _database(listing))
    names = [
        name for name in listing.top.visible if name.endswith("_lmdb") and listing.has_file(f"{name}/{DATA}")
    ]
    matches = {name: match[1] for name in names if (match := _LSUN.fullmatch(name))}
    if not matches:
        return None
    return Claim("lmdb", "LSUN's databases", next(iter(matches)), lambda: _lsun(listing, matches))


def open_lmdb_file(path: str) -> Mapping[str, DatabaseSource] | None:
    """List the records of an LMDB database in a single file."""
    return {"": list_lmdb(path, _UNLABELLED)} if path.lower().endswith((".lmdb", ".mdb")) else None


def open_hdf5_file(path: str) -> Mapping[str, DatabaseSource] | None:
    """List the images of an HDF5 file."""
    return {"": list_hdf5(path)} if path.lower().endswith((".h5", ".hdf5", ".he5")) else None


def _database(listing: Listing) -> Reading:
    source = list_lmdb(listing.name, _UNLABELLED)
    return Reading({"": source}, [BASICSR.sign] if source.kind == BASICSR.kind else [], {_LOCK: _LOCKED})


def _lsun(listing: Listing, class_of: Mapping[str, str]) -> Reading:
    classes = sorted({*class_of.values()})
    labels = {name: classes.index(class_name) for name, class_name in class_of.items()}
    sources = {
        split: list_lmdb(listing.name, {name: labels[name] for name in names}, classes)
        for split, names in files_by_split(listing.name, class_of).items()
    }
    return Reading(sources, (), {f"{name}/{_LOCK}": _LOCKED for name in class_of})
