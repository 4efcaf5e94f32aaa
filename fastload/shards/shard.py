"""Shard readers and writers by the name of their container."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastload.errors import OptionError
from fastload.shards._entries import ShardEntry
from fastload.shards.container import ShardReader, ShardWriter
from fastload.shards.schema import Column

# h5py and lmdb are imported on first use: a dataset needs only one of them.


def writer_for(container: str) -> type[ShardWriter]:
    """Return the writer of the container `hdf5` or `lmdb`; raise OptionError for any other name."""
    if container == "hdf5":
        from fastload.shards._hdf5 import Hdf5Writer

        return Hdf5Writer
    if container == "lmdb":
        from fastload.shards._lmdb import LmdbWriter

        return LmdbWriter
    raise OptionError(f"format must be hdf5 or lmdb, got {container!r}")


def open_shard(container: str, path: Path, columns: Sequence[Column], entry: ShardEntry) -> ShardReader:
    """Open a shard that must hold these columns; raise AccessError or DamageError if it cannot be read."""
    if container == "hdf5":
        from fastload.shards._hdf5 import Hdf5Reader

        return Hdf5Reader(path, columns, entry)
    from fastload.shards._lmdb import LmdbReader

    return LmdbReader(path, columns, entry)
