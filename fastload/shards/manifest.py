"""manifest.json: what a packed dataset holds, how it was made, and the digest of every shard.

The manifest protects itself: its `sha256` is that of the file's own bytes with the 64 digits of the
digest replaced by zeros, so that a flipped bit anywhere in it is noticed when the dataset is opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastload.errors import FormatError
from fastload.shards.schema import IMAGE_ENCODINGS, Column, Field, record_columns

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"

_CONTAINERS = ("hdf5", "lmdb")
_SHARD_NAME = re.compile(r"shard-[0-9]{5,}\.(h5|lmdb)")
_NO_DIGEST = "0" * 64
_DIGEST_BEGIN = b'"sha256": "'


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard as the manifest lists it.

    Attributes:
        file: Its name in the dataset's folder.
        records: The number of its records.
        size_bytes: The size of the file.
        crc32c: The CRC-32C of the whole file, eight hexadecimal digits.
        columns: The CRC-32C of each scalar and vector field's whole column, so that all labels can be
            had, and checked, without reading the images.
    """

    file: str
    records: int
    size_bytes: int
    crc32c: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A source file that could not be packed, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a packed dataset that does not grow with its records.

    Attributes:
        container: `hdf5` or `lmdb`.
        fields: The fields of every record; the first one is the image.
        classes: The names of the classes, by label.
        shards: The shards in order; records are numbered through.
        made: How it was made: the versions of fastload and of the libraries, source and options.
        image_shape: (height, width, channels) where every stored image has it, otherwise None.
        skipped: The source's files that were left out.
        kept: Keys of files that were stored although they cannot be read as images.
    """

    container: str
    fields: tuple[Field, ...]
    classes: tuple[str, ...]
    shards: tuple[ShardEntry, ...]
    made: Mapping[str, Any]
    image_shape: tuple[int, int, int] | None = None
    skipped: tuple[Skipped, ...] = ()
    kept: tuple[Skipped, ...] = ()

    @property
    def records(self) -> int:
        """The number of records in all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """The size of all shards."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of every record, in the order in which its checksum reads them."""
        return record_columns(self.fields)

    @property
    def image(self) -> Field:
        """The field that holds the image."""
        return self.fields[0]

    def to_bytes(self) -> bytes:
        """The manifest as it is written, digest included."""
        content = {
            "format": "fastload",
            "version": FORMAT_VERSION,
            "sha256": _NO_DIGEST,
            "container": self.container,
            "records": self.records,
            "fields": [field.to_json() for field in self.fields],
            "image_shape": self.image_shape,
            "classes": self.classes,
            "shards": [asdict(shard) for shard in self.shards],
            "skipped": [asdict(item) for item in self.skipped],
            "kept": [asdict(item) for item in self.kept],
            "made": self.made,
        }
        text = json.dumps(content, indent=1) + "\n"
        blank = text.encode("ascii")
        return blank.replace(_NO_DIGEST.encode(), _digest_of_blank(blank), 1)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Reads what `to_bytes` wrote.

        Args:
            data: The file's bytes.
            where: The file's name, for messages.

        Raises:
            FormatError: It is no manifest, it was damaged, or a newer release wrote it.
        """
        content = _parse(data, where)
        _check_version(content, where)
        _check_digest(data, where)
        try:
            shape = content["image_shape"]
            manifest = cls(
                container=content["container"],
                fields=tuple(Field.from_json(entry) for entry in content["fields"]),
                classes=tuple(content["classes"]),
                shards=tuple(ShardEntry(**entry) for entry in content["shards"]),
                made=content["made"],
                image_shape=None if shape is None else (shape[0], shape[1], shape[2]),
                skipped=tuple(Skipped(**entry) for entry in content["skipped"]),
                kept=tuple(Skipped(**entry) for entry in content["kept"]),
            )
        except (KeyError, TypeError, IndexError) as error:
            raise FormatError(
                f"{where}: {error!r} is missing or malformed, although the digest is right: "
                "the program that wrote it did not follow docs/format.md"
            ) from error
        _check_sense(manifest, content["records"], where)
        return manifest


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """Reads the manifest of the packed dataset in `folder`.

    Raises:
        FormatError: The folder holds no packed dataset, or one that cannot be read.
    """
    path = Path(folder) / MANIFEST_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(_explain_missing(Path(folder))) from error
    return Manifest.from_bytes(data, str(path))


def is_shard_name(name: str) -> bool:
    """Whether a file of this name is one that packing makes."""
    return _SHARD_NAME.fullmatch(name) is not None


def is_packed(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a manifest of ours (which may be damaged)."""
    try:
        with open(Path(folder) / MANIFEST_NAME, "rb") as file:
            # Said twice, as the format and by what it was made: one flipped bit does not hide both.
            return b'"fastload"' in file.read()
    except OSError:
        return False


def packed_splits(folder: str | os.PathLike[str]) -> list[Path]:
    """The packed datasets that lie directly in a folder: what packing train/ and val/ together makes.

    One whose manifest is gone or damaged is still one: it must be noticed, not passed over.
    """
    try:
        return sorted(path for path in Path(folder).iterdir() if looks_packed(path))
    except OSError:
        return []


def looks_packed(folder: Path) -> bool:
    """Whether a folder is or was a packed dataset: it has a manifest or shards, sound or not."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return MANIFEST_NAME in names or any(map(is_shard_name, names))


def packed_datasets(path: str | os.PathLike[str]) -> list[Path]:
    """The packed dataset at a path, or those that lie directly in the folder there.

    Raises:
        FormatError: There is none.
    """
    folder = Path(path)
    if looks_packed(folder):
        return [folder]
    splits = packed_splits(folder)
    if not splits:
        raise FormatError(_explain_missing(folder))
    return splits


def _explain_missing(folder: Path) -> str:
    if not folder.exists():
        return f"{folder}: there is no such folder; 'fastload pack SOURCE {folder}' makes one"
    splits = packed_splits(folder)
    if splits:
        names = ", ".join(str(path) for path in splits)
        return f"{folder}: holds several packed datasets; name one of them: {names}"
    return (
        f"{folder}: is no packed dataset, it has no readable {MANIFEST_NAME}; "
        f"'fastload pack {folder} DEST' makes one of a folder of images"
    )


def _parse(data: bytes, where: str) -> dict[str, Any]:
    damaged = "the file was damaged after packing: restore it from a copy, or pack again"
    try:
        content = json.loads(data)
    except ValueError as error:
        raise FormatError(f"{where}: is no valid JSON ({error}); {damaged}") from error
    if not isinstance(content, dict) or content.get("format") != "fastload":
        raise FormatError(f'{where}: "format" must be "fastload"; {damaged}')
    return content


def _check_version(content: Mapping[str, Any], where: str) -> None:
    version = content.get("version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise FormatError(
            f"{where}: its format version is {version!r}, this release reads 1 to {FORMAT_VERSION}: "
            "pip install -U fastload"
        )


def _check_digest(data: bytes, where: str) -> None:
    begin = data.find(_DIGEST_BEGIN) + len(_DIGEST_BEGIN)
    stored = data[begin : begin + 64]
    actual = _digest_of_blank(data[:begin] + _NO_DIGEST.encode() + data[begin + 64 :])
    if begin < len(_DIGEST_BEGIN) or stored != actual:
        raise FormatError(
            f"{where}: its digest is {actual.decode()}, it says {stored.decode('ascii', 'replace')}: "
            "the file was damaged after packing: restore it from a copy, or pack again"
        )


def _check_sense(manifest: Manifest, records: Any, where: str) -> None:
    """Refuses what a right digest does not rule out: a manifest that was made up."""
    shards = manifest.shards
    rules = {
        f"a container among {', '.join(_CONTAINERS)}": manifest.container in _CONTAINERS,
        "a first field of kind image": bool(manifest.fields) and manifest.fields[0].kind == "image",
        f"image encodings among {', '.join(IMAGE_ENCODINGS)}": all(
            field.encoding in IMAGE_ENCODINGS for field in manifest.fields if field.kind == "image"
        ),
        "shards named shard-00000 and so on": all(is_shard_name(shard.file) for shard in shards),
        "whole numbers of records and bytes": all(
            _is_count(number) for shard in shards for number in (shard.records, shard.size_bytes)
        ),
        "names of classes": all(isinstance(name, str) for name in manifest.classes),
        "an account of how it was made": isinstance(manifest.made, dict),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if not broken and records != manifest.records:
        broken = [f"as many records as its shards, which is {manifest.records}"]
    if broken:
        raise FormatError(f"{where}: must have {broken[0]}, and has not: do not trust this dataset")


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and number >= 0


def _digest_of_blank(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
