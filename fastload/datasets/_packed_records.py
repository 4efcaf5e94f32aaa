"""The records of a packed dataset, opened from a folder or a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fastload.datasets.cache.options import Cache, cache_of
from fastload.errors import OptionError
from fastload.shards.records import RecordReader, Verify
from fastload.shards.remote import RemoteFolder, is_url


def open_records(
    path: str | os.PathLike[str] | RemoteFolder,
    verify: Verify,
    storage_options: Mapping[str, object] | None,
    cache: str | Cache | None,
) -> tuple[RecordReader, str | Cache | None]:
    """Open the records at a path; return them, and the cache through which they are to be read.

    For a remote dataset, a cache on the disk only sets the folder and the size limit of the copies of shards.
    """
    if is_url(path):
        path = RemoteFolder(str(path), storage_options)
    elif storage_options is not None:
        raise OptionError(f"storage_options are for a URL, got them for {path!r}: leave them out")
    if isinstance(path, RemoteFolder) and cache is not None and cache_of(cache).kind == "disk":
        copies = cache_of(cache)
        return RecordReader(path, verify, copies.folder, copies.most_bytes), None
    return RecordReader(path, verify), cache
