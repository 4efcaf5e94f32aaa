"""manifest.json: the content of a packed dataset, how it was made, and the checksums of every shard.

The manifest protects itself: its `sha256` is the digest of the file's own bytes with the digest's 64 digits
replaced by zeros, so that a flipped bit anywhere is noticed when the dataset is opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fastload.errors import HOW_TO_INSTALL, AccessError, FormatError, RemoteMissingError
from fastload.shards.attachment import ATTACHMENT_NAME, Attachment
from fastload.shards.container import MOST_RECORDS, is_shard_name, stamp_of, unreadable
from fastload.shards.container import ShardEntry as ShardEntry
from fastload.shards.json_values import JsonValue
from fastload.shards.remote import RemoteFolder, is_url
from fastload.shards.remote_errors import text_of
from fastload.shards.schema import Column, Field, image_of, record_columns

FORMAT_VERSION = 5
_OLDEST_VERSION = 2  # a manifest has the lowest version that has its fields, so that older releases read it
_WITHOUT_IMAGE_VERSION = 4
MANIFEST_NAME = "manifest.json"

# The file is read in one go. A million skipped files take 0.1 GB.
_MOST_MANIFEST_BYTES = 1 << 30
_MOST_SIDE = (1 << 32) - 1
_CONTAINER = re.compile("hdf5|lmdb")
_NO_DIGEST = "0" * 64
_DIGEST_BEGIN = b'"sha256": "'
_DAMAGED = "the file was damaged after packing: restore it from a copy, or pack again"


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


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of a packed dataset, without its records."""

    container: str  # `hdf5` or `lmdb`
    fields: tuple[Field, ...]  # of every record; the first one is the image, if records have one
    classes: tuple[str, ...]  # names, by label
    shards: tuple[ShardEntry, ...]  # records are numbered through all of them, in this order
    made: Mapping[str, object]  # the versions of fastload and of the libraries, source and options
    image_shape: tuple[int, int, int] | None = None  # (height, width, channels) if all stored images share it
    skipped: tuple[Skipped, ...] = ()  # records that were left out because they cannot be read
    kept: tuple[Skipped, ...] = ()  # files that were stored although they cannot be read as images
    left_out: tuple[LeftOut, ...] = ()  # files of the source that are not records
    attachment: Attachment | None = None  # the source's annotation files, in the first split alone

    @property
    def details(self) -> Mapping[str, object]:
        """The details of the source, among those of how it was made."""
        details = self.made.get("details")
        return details if isinstance(details, dict) else {}

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
        """The columns of every record, in the order of its checksum."""
        return record_columns(self.fields)

    @property
    def image(self) -> Field | None:
        """The field that holds the image; None if records have no image."""
        return image_of(self.fields)

    @property
    def value_fields(self) -> tuple[Field, ...]:
        """The fields of every record but the image."""
        return self.fields if self.image is None else self.fields[1:]

    def to_bytes(self) -> bytes:
        """Return the content of the manifest's file, with the digest."""
        least = _OLDEST_VERSION if self.image is not None else _WITHOUT_IMAGE_VERSION
        content = {
            "format": "fastload",
            "version": max(least, *(field.least_version for field in self.fields)),
            "sha256": _NO_DIGEST,
            "container": self.container,
            "records": self.records,
            "fields": [field.to_json() for field in self.fields],
            "image_shape": self.image_shape,
            "classes": self.classes,
            "shards": [asdict(shard) for shard in self.shards],
            "skipped": [asdict(item) for item in self.skipped],
            "kept": [asdict(item) for item in self.kept],
            "left_out": [asdict(item) for item in self.left_out],
            "made": self.made,
            **({} if self.attachment is None else {"attachment": asdict(self.attachment)}),
        }
        text = json.dumps(content, indent=1) + "\n"
        blank = text.encode("ascii")
        return blank.replace(_NO_DIGEST.encode(), _digest_of_blank(blank), 1)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Parse the result of `to_bytes`; raise FormatError, which names `where`, for anything else."""
        try:
            content = JsonValue.parsed(data)
        except ValueError as error:
            raise FormatError(f"{where}: is not valid JSON ({error}); {_DAMAGED}") from error
        if not isinstance(content.value, dict) or content.value.get("format") != "fastload":
            raise FormatError(f'{where}: "format" must be "fastload"; {_DAMAGED}')
        version = content.value.get("version")
        if type(version) is not int or not _OLDEST_VERSION <= version <= FORMAT_VERSION:
            raise FormatError(
                f"{where}: its format version is {version!r}, this release reads {_OLDEST_VERSION} to "
                f"{FORMAT_VERSION}: install a newer one ({HOW_TO_INSTALL})"
            )
        _check_digest(data, where)
        try:
            return _manifest_of(content)
        except ValueError as error:
            raise FormatError(
                f"{where}: {error}, although the digest is right: "
                "the program that wrote it did not follow the format's specification"
            ) from error


def _manifest_of(content: JsonValue) -> Manifest:
    """Convert every value; raise ValueError, which names the value, if one is invalid."""
    container = content["container"].text(_CONTAINER)
    fields = tuple(Field.from_json(entry.value, entry.name) for entry in content["fields"].each())
    names = [field.name for field in fields]
    if not fields or len(set(names)) < len(names):
        raise ValueError(f"fields must have different names, got {names}")
    may_lack_image = content["version"].count() >= _WITHOUT_IMAGE_VERSION
    if image_of(fields) is None and (not may_lack_image or any(field.needs_image for field in fields)):
        raise ValueError(f"fields must begin with the image to which others belong, got {names}")
    shape = content["image_shape"]
    sides = None if shape.value is None else [side.count(1, _MOST_SIDE) for side in shape.each()]
    if sides is not None and len(sides) != 3:
        raise ValueError(f"image_shape must have three sides, got {len(sides)}")
    manifest = Manifest(
        container=container,
        fields=fields,
        classes=tuple(name.text() for name in content["classes"].each()),
        shards=tuple(ShardEntry.from_json(entry, container, fields) for entry in content["shards"].each()),
        made=content["made"].mapping(),
        image_shape=None if sides is None else (sides[0], sides[1], sides[2]),
        skipped=tuple(Skipped(*_reason_of(each)) for each in content["skipped"].each()),
        kept=tuple(Skipped(*_reason_of(each)) for each in content["kept"].each()),
        left_out=tuple(
            LeftOut(*_reason_of(each), each["files"].count(1), each["is_clutter"].flag())
            for each in content["left_out"].each()
        ),
        attachment=None if (found := content.get("attachment")) is None else Attachment.from_json(found),
    )
    for unique in ([shard.file for shard in manifest.shards], [shard.identity for shard in manifest.shards]):
        if len(set(unique)) < len(unique):
            raise ValueError("shards must be different files with different identities")
    if content["records"].count() != manifest.records or manifest.records > MOST_RECORDS:
        raise ValueError(
            f"records must be the sum over the shards, {manifest.records}, got {content['records'].value}"
        )
    return manifest


def _reason_of(entry: JsonValue) -> tuple[str, str]:
    return entry["key"].text(), entry["reason"].text()


def _check_digest(data: bytes, where: str) -> None:
    begin = data.find(_DIGEST_BEGIN) + len(_DIGEST_BEGIN)
    stored = data[begin : begin + 64]
    actual = _digest_of_blank(data[:begin] + _NO_DIGEST.encode() + data[begin + 64 :])
    if begin < len(_DIGEST_BEGIN) or stored != actual:
        raise FormatError(
            f"{where}: its digest is {actual.decode()}, it states {stored.decode('ascii', 'replace')}: "
            f"{_DAMAGED}"
        )


def _digest_of_blank(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def read_manifest(folder: str | os.PathLike[str] | RemoteFolder) -> Manifest:
    """Read the manifest of the packed dataset in `folder`.

    Raises:
        AccessError: This process may not read it.
        FormatError: There is no manifest, or it is damaged.
        RemoteError: The server of a remote dataset cannot be reached.
    """
    if is_url(folder):
        folder = RemoteFolder(str(folder))
    if isinstance(folder, RemoteFolder):
        try:
            return Manifest.from_bytes(folder.read(MANIFEST_NAME), folder / MANIFEST_NAME)
        except RemoteMissingError as error:
            raise FormatError(
                f"{folder}: is not a packed dataset, it has no {MANIFEST_NAME} "
                f"({text_of(error.__cause__ or error)}): {_advice_on(folder.url)}; "
                "'fastload pack SOURCE URL' makes one in a bucket"
            ) from error
    path = Path(folder) / MANIFEST_NAME
    try:
        data = _read_bytes(path)
    except (OSError, ValueError) as error:
        raise _missing_dataset(Path(folder), error) from error
    return Manifest.from_bytes(data, str(path))


def _advice_on(url: str) -> str:
    return f"leave {MANIFEST_NAME} out" if url.endswith(f"/{MANIFEST_NAME}") else "check the URL"


def _read_bytes(path: Path) -> bytes:
    """Read a manifest; raise OSError for a special or oversized file, ValueError for an invalid path."""
    size = stamp_of(path).size_bytes
    if size > _MOST_MANIFEST_BYTES:
        raise OSError(errno.EFBIG, f"{size} bytes are too many for a manifest", str(path))
    return path.read_bytes()


def is_packed(folder: str | os.PathLike[str]) -> bool:
    """Return True if the folder holds a fastload manifest, which may be damaged."""
    try:
        # The word occurs twice, as the format and in `made`: one flipped bit does not hide both.
        return b'"fastload"' in _read_bytes(Path(folder) / MANIFEST_NAME)
    except (OSError, ValueError):
        return False


def is_own_name(name: str) -> bool:
    """Return True if packing makes files of this name."""
    return name in (MANIFEST_NAME, ATTACHMENT_NAME) or is_shard_name(name)


def packed_splits(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the packed datasets directly in a folder, such as train/ and val/, damaged ones included."""
    try:
        return sorted(path for path in Path(folder).iterdir() if looks_packed(path))
    except OSError:
        return []


def looks_packed(folder: Path) -> bool:
    """Return True if a folder is or was a packed dataset: it has a manifest or shards, intact or not."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return MANIFEST_NAME in names or any(map(is_shard_name, names))


def packed_datasets(path: str | os.PathLike[str]) -> list[Path]:
    """Return the packed dataset at a path, or those directly in it; raise FormatError if there is none."""
    folder = Path(path)
    if looks_packed(folder):
        return [folder]
    splits = packed_splits(folder)
    if not splits:
        try:
            os.listdir(folder)
        except OSError as error:
            raise _missing_dataset(folder, error) from error
        raise FormatError(_explain_missing(folder))
    return splits


def _missing_dataset(folder: Path, error: OSError | ValueError) -> AccessError | FormatError:
    """Return the error for a folder whose manifest cannot be read."""
    if isinstance(error, OSError):
        refusal = unreadable(Path(error.filename or folder), error)
        if isinstance(refusal, AccessError):
            return refusal
    return FormatError(_explain_missing(folder))


def _explain_missing(folder: Path) -> str:
    if not os.path.exists(folder):
        return f"{folder}: there is no such folder; 'fastload pack SOURCE {folder}' makes one"
    splits = packed_splits(folder)
    if splits:
        names = ", ".join(str(path) for path in splits)
        return f"{folder}: holds several packed datasets; name one of them: {names}"
    return (
        f"{folder}: is not a packed dataset, it has no readable {MANIFEST_NAME}; "
        f"'fastload pack {folder} DEST' makes one of a folder of images"
    )
