"""Writing of other programs' files, each of many records: the choice of the writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fastload.packing._stored_records import StoredRecords
from fastload.packing._unpack_arrow import write_arrow
from fastload.packing._unpack_hdf5 import write_hdf5
from fastload.packing._unpack_lmdb import write_lmdb
from fastload.packing._unpack_tar import write_tar
from fastload.shards.manifest import Manifest
from fastload.shards.records import RecordReader

# By the kind of the source up to a hyphen; each returns the files that it wrote.
_WRITERS: dict[str, Callable[[StoredRecords, Path], list[Path]]] = {
    "webdataset": write_tar,
    "huggingface": write_arrow,
    "lmdb": write_lmdb,
    "hdf5": write_hdf5,
}


def is_of_containers(manifest: Manifest) -> bool:
    """Return True if a dataset was packed from files of many records, which `write_containers` writes."""
    return _kind(manifest) in _WRITERS


def write_containers(
    reader: RecordReader, root: Path, progress: Callable[[int, int], None] | None
) -> tuple[list[Path], tuple[str, ...]]:
    """Write the files that a dataset was packed from; return their paths, and messages of damaged records."""
    records = StoredRecords(reader, progress)
    root.mkdir(parents=True, exist_ok=True)
    return _WRITERS[_kind(reader.manifest)](records, root), tuple(records.damaged)


def _kind(manifest: Manifest) -> str:
    return str(manifest.made.get("source_kind")).partition("-")[0]
