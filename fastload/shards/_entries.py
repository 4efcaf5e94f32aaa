"""Entries of a manifest: shards, and source files that were skipped or left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastload.shards._json_values import JsonValue
from fastload.shards.schema import Field

# A process keeps one byte for each record.
MOST_RECORDS = 1 << 48
# A record's checksum, and the shape and grid of its image.
_LEAST_RECORD_BYTES = 32

_SHARD_NAME = re.compile(r"shard-[0-9]{5,}\.(h5|lmdb)")
_SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb"}
_CRC = re.compile("[0-9a-f]{8}")
_IDENTITY = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard as the manifest lists it.

    Attributes:
        file: Its name in the dataset's folder.
        records: The number of its records.
        size_bytes: The size of the file.
        crc32c: The CRC-32C of the whole file, eight hexadecimal digits.
        columns: The CRC-32C of each scalar and vector field's whole column, starting with the shard's
            identity, so that all labels can be read and verified without the images.
        identity: 32 hexadecimal digits; see `fastload.shards.checksum`.
    """

    file: str
    records: int
    size_bytes: int
    crc32c: str
    columns: Mapping[str, str]
    identity: str

    @classmethod
    def from_json(cls, entry: JsonValue, container: str, fields: Sequence[Field]) -> ShardEntry:
        """Read an entry; raise ValueError, naming the value, if one is impossible."""
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
        if shard.records * _LEAST_RECORD_BYTES > shard.size_bytes:
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
    """A source file that could not be packed, and the reason."""

    key: str
    reason: str

    @classmethod
    def from_json(cls, entry: JsonValue) -> Skipped:
        """Read an entry; raise ValueError if it is malformed."""
        return cls(entry["key"].text(), entry["reason"].text())


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file beside the records that is not one of them, or all such files of a kind.

    Attributes:
        key: Its path relative to the source; for a kind, a pattern such as `**/*.txt`.
        reason: Why it was left out.
        files: The number of files that the entry stands for.
        is_clutter: Whether it needs no attention: a hidden file, a system's, a README.
    """

    key: str
    reason: str
    files: int = 1
    is_clutter: bool = False

    @classmethod
    def from_json(cls, entry: JsonValue) -> LeftOut:
        """Read an entry; raise ValueError if it is malformed."""
        return cls(
            entry["key"].text(),
            entry["reason"].text(),
            entry["files"].count(1),
            entry["is_clutter"].flag(),
        )


def is_shard_name(name: str) -> bool:
    """Return whether a file of this name is a shard."""
    return _SHARD_NAME.fullmatch(name) is not None
