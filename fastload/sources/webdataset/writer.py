"""Writing of WebDataset's tar shards."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastload.shards.record import Record
from fastload.sources.stored_records import ImageFiles, StoredRecords, drafted, safe_path
from fastload.sources.webdataset.tar import RULES, Split

# The compression that Python's tarfile applies, by the suffix of a shard's name.
_COMPRESSIONS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "tbz2": "bz2", "xz": "xz", "txz": "xz", "zst": "zst"}


def write_tar(records: StoredRecords, root: Path) -> list[Path]:
    """Write the shards of a dataset under their names below root."""
    details = records.details
    key_of = RULES[details.get("rule", "first dot")]  # datasets of older releases state none
    written = []
    for name, of_file in records.by_file():
        path = safe_path(root, name)
        mode: Any = f"x:{_COMPRESSIONS.get(path.suffix[1:].lower(), '')}"
        with drafted(path) as draft, tarfile.open(draft, mode) as tar:
            for record, files in of_file:
                for member, data in _members(record, files, details, records.manifest.classes, key_of):
                    entry = tarfile.TarInfo(member)
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
        written.append(path)
    return written


def _members(
    record: Record, files: ImageFiles, details: Mapping[str, Any], classes: tuple[str, ...], key_of: Split
) -> Iterator[tuple[str, bytes]]:
    key = record.key
    if "image" in files:
        image, suffix = files["image"]
        key = key_of(record.key)[0] or record.key
        yield record.key + ("" if record.key.lower().endswith(suffix) else suffix), image
    for name, extension in details["members"].items():
        value: Any = files[name][0] if name in files else record[name]
        if name == "label":
            label = classes[value] if 0 <= value < len(classes) else str(value)
            value = f"{label}{details['ending']}"
        yield f"{key}.{extension}", _to_bytes(value, extension)


def _to_bytes(value: Any, extension: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if extension.rpartition(".")[2].lower() != "npy":
        return str(value).encode("utf-8", "surrogateescape")
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()
