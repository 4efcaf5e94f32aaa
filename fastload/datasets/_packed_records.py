"""The records of a packed dataset: opened from a folder or a URL, and their size for a cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastload.datasets.cache._attaching import Extent, estimated_bytes
from fastload.datasets.cache._records import RecordLayout
from fastload.datasets.cache.options import Cache, cache_of
from fastload.errors import OptionError
from fastload.images.encodings import Encoding
from fastload.shards.records import RecordReader, Verify
from fastload.shards.remote import RemoteFolder, is_url
from fastload.sources.protocol import evenly_spaced

# The number of shapes from which the size of the decoded dataset is estimated.
_SAMPLED = 64

# The estimated size of a key, a relative path; if keys are longer on average, the last images do not fit.
_KEY_BYTES = 64


def open_records(
    path: str | os.PathLike[str] | RemoteFolder,
    verify: Verify,
    storage_options: Mapping[str, Any] | None,
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


def extent_of(records: RecordReader, encoding: Encoding | None, wants_pixels: bool) -> Extent:
    """Return the size of records; of their pixels only if wanted, because shapes may have to be read."""
    manifest, count = records.manifest, len(records)
    shapes = np.zeros((0, 3))
    if manifest.image_shape is not None:
        shapes = np.array([manifest.image_shape])
    elif wants_pixels and count and encoding is not None:
        shapes = records.take("image/shape", np.array(evenly_spaced(count, _SAMPLED)))
    pixels = shapes[:, :2].astype(np.int64).prod(axis=1) * 3
    # Other fields: at most the size of the shards, if records hold more than keys and numbers. Without
    # images, `stored_bytes` are those of all fields.
    fields = [field for field in manifest.value_fields if not field.internal]
    is_small = encoding is None or all(field.kind in ("scalar", "vector") for field in fields)
    digest = hashlib.sha256(manifest.to_bytes()).hexdigest()
    is_remote = isinstance(records.folder, RemoteFolder)
    place = str(records.folder) if is_remote else os.path.realpath(str(records.folder))
    return Extent(
        # A cache of unverified records is shared only with datasets that do not verify either.
        identity=f"packed {place} {digest} {records.verify == 'never'}",
        samples=count,
        stored_bytes=manifest.size_bytes,
        decoded_bytes=estimated_bytes(pixels.tolist(), count),
        other_bytes=count * _KEY_BYTES if is_small else manifest.size_bytes,
        fixed_bytes=RecordLayout(manifest.columns, has_image=manifest.image is not None).fixed_bytes,
        paths=() if is_remote else tuple(str(records.folder / shard.file) for shard in manifest.shards),
        can_be_decoded=encoding is not None and encoding.name != "raw",
    )
