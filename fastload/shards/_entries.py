"""Entries of a manifest: shards, and source files that were skipped, kept or left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastload.shards._json_values import JsonValue
from fastload.shards.schema import Field, image_of

# Each process allocates one byte per record.
MOST_RECORDS = 1 << 48
# A record's checksum; and the shape and grid of its image.
_LEAST_RECORD_BYTES, _LEAST_IMAGE_BYTES = 4, 28

_SHARD_NAME = re.compile(r"shard-[0-9]{5,}\.(h5|lmdb)")
_SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb"}
_CRC = re.compile("[0-9a-f]{8}")
_IDENTITY = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard as the manifest lists it; checksums and identity in hexadecimal digits.

    `columns` holds the CRC-32C of the column of each scalar and vector field, starting with the shard's
    identity, so that all labels can be read and verified without the images.
    """

    file: str
    records: int
    size_bytes: int
    crc32c: str  # of the file
    columns: Mapping[str, str]
    identity: str  # see `fastload.shards.checksum`

    @classmethod
    def from_json(cls, entry: JsonValue, container: str, fields: Sequence[Field]) -> ShardEntry:
        """Read an entry; raise ValueError, which names the value, if one is impossible."""
        columns = entry["columns"]
        shard = cls(
            file=entry["file"].text(_SHARD_NAME),
            records=entry["records"].count(1, MOST_RECORDS),
            size_bytes=entry["size_bytes"].count(),
            crc32c=entry["crc32c"].text(_CRC),
            columns={name: columns[name].text(_CRC) for name in columns.mapping()},
            identity=entry["identity"].text(_IDENTITY),
        )
        if not shard.file.endswith(_SUFFIXES[container]):
            raise ValueError(f"{entry.name}.file must end in {_SUFFIXES[container]}, got {shard.file!r}")
        least_bytes = _LEAST_RECORD_BYTES + (_LEAST_IMAGE_BYTES if image_of(fields) is not None else 0)
        if shard.records * least_bytes > shard.size_bytes:
            raise ValueError(
                f"{entry.name} must be large enough for its {shard.records} records, "
                f"got {shard.size_bytes} bytes"
            )
        expected = sorted(field.name for field in fields if field.kind in ("scalar", "vector"))
        if sorted(shard.columns) != expected:
            raise ValueError(f"{columns.name} must list {expected}, got {sorted(shard.columns)}")
        return shard


@dataclass(frozen=True, slots=True)
class Skipped:
    """A source file that could not be packed as an image, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A source file that is not a record, or all such files of a kind."""

    key: str  # its path relative to the source; for a kind, a pattern such as `**/*.txt`
    reason: str
    files: int = 1  # the number of files that the entry stands for
    is_clutter: bool = False  # needs no attention: a hidden file, a system file, a README


def is_shard_name(name: str) -> bool:
    """Return True if a file of this name is a shard."""
    return _SHARD_NAME.fullmatch(name) is not None
