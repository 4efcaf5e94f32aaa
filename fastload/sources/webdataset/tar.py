"""Tar shards: members read at their offsets without extracting anything, parts of their names, and writing.

A compressed file can only be read forwards: reading members in order takes one pass, and every step back
starts another.

A name is the key of a sample and an extension, between which two rules decide. WebDataset splits it at the
first dot: `a.left.jpg` is `left.jpg` of the sample `a`. Tars that other programs make of files have dots
anywhere: `cats/cat.0.jpg` is an image of its own, not `0.jpg` of the sample `cats/cat`. There, a name is
split at its last dot, or before the known extensions that it ends in.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import tarfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from fastload.shards.json_values import JsonValue
from fastload.shards.record import Record
from fastload.sources.files import NOT_FOUND
from fastload.sources.listing import IMAGE_SUFFIXES
from fastload.sources.malformed import explaining, malformed
from fastload.sources.writing import ImageFiles, StoredRecords, drafted, safe_path

IMAGES = tuple(suffix[1:] for suffix in (*IMAGE_SUFFIXES, ".gif", ".avif", ".jp2"))
# The extensions that webdataset's own decoder reads as integers and as text.
INTEGERS = ("cls2", "class", "count", "index", "inx", "id")
TEXTS = ("txt", "text", "transcript", "json", "jsn")

# Further extensions of webdataset's decoders, and the usual names of a second image or text of a sample.
_KNOWN = {
    *IMAGES, *INTEGERS, *TEXTS, "cls", "npy", "npz", "pyd", "pkl", "pickle", "pth", "ten", "tb", "mp", "msg",
    "cbor", "gz", "wav", "flac", "mp3", "mp4", "seg", "segmentation", "mask", "masks", "label", "labels",
    "depth", "caption", "captions", "meta", "metadata",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_KEY = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
Split = Callable[[str], tuple[str, str]]

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
# The compression that Python's tarfile applies, by the suffix of a shard's name.
_COMPRESSIONS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "tbz2": "bz2", "xz": "xz", "txz": "xz", "zst": "zst"}
_READ_BYTES = 1 << 20
_DAMAGED = "the file is damaged or was cut off: copy or write it again"
_ERRORS = (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error, lzma.LZMAError)


def at_first_dot(name: str) -> tuple[str, str]:
    """Return the key and the extension of a member by WebDataset's rule; ("", "") if it has none.

    >>> at_first_dot("photos/a.left.jpg")
    ('photos/a', 'left.jpg')
    """
    match = _KEY.fullmatch(name)
    return (match[1], match[2]) if match is not None else ("", "")


def before_suffixes(name: str) -> tuple[str, str]:
    """Return the key and the extension of a member: its last dot, or the known extensions that it ends in.

    >>> before_suffixes("cats/cat.0.jpg"), before_suffixes("cats/cat.0.seg.png")
    (('cats/cat.0', 'jpg'), ('cats/cat.0', 'seg.png'))
    """
    folder, slash, base = name.rpartition("/")
    parts = base.split(".")
    if not parts[0] or len(parts) < 2:
        return "", ""
    start = len(parts) - 1
    while start > 1 and {parts[start - 1].lower(), parts[start].lower()} <= _KNOWN:
        start -= 1
    return folder + slash + ".".join(parts[:start]), ".".join(parts[start:])


RULES: Mapping[str, Split] = {"first dot": at_first_dot, "suffixes": before_suffixes}
"""The rules by the names that packed datasets state."""


def kind_of(extension: str) -> str:
    """Return the last part of an extension, which determines what its members hold."""
    return extension.rpartition(".")[2]


def are_words(extension: str) -> bool:
    """Return True if the parts of an extension could be names of fields.

    >>> are_words("left.jpg"), are_words("0.jpg")
    (True, False)
    """
    return all(map(_WORD.fullmatch, extension.split(".")))


class TarReader:
    """Reader of tar files; the last file stays open, because seeking in a compressed one means reading it."""

    def __init__(self) -> None:
        self._path = ""
        self._process = 0
        self._file: Any = None
        self._close = weakref.finalize(self, int)

    def __reduce__(self) -> tuple[type[TarReader], tuple[()]]:
        return TarReader, ()

    def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return the bytes at an offset; raise SourceError if they cannot be read."""
        with _explaining(path):
            # A forked process would share its parent's position in the file.
            if (self._path, self._process) != (path, os.getpid()):
                self._close()
                archive = _open(path)
                self._file, self._path, self._process = archive.fileobj, path, os.getpid()
                self._close = weakref.finalize(self, archive.close)
            self._file.seek(offset)
            data: bytes = self._file.read(size_bytes)
            return data


def tar_members(path: str) -> Iterator[tuple[str, int, int]]:
    """Yield the members of a tar file but folders in order: the name, and the offset and size of the bytes.

    The size is NOT_FOUND for links and devices. SourceError, naming the offset, is raised for a damaged file.
    """
    archive: Any
    with _explaining(path), _open(path) as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # millions of them would take gigabytes
            if member.issparse():
                where = f"{path}, offset {member.offset}"
                raise malformed(where, "hold members without holes", "a sparse one", "write it without them")
            if not member.isdir():
                yield member.name, member.offset_data, member.size if member.isreg() else NOT_FOUND
        while rest := archive.fileobj.read(_READ_BYTES):
            if any(rest):
                must = "hold nothing after the end of the archive"
                raise malformed(f"{path}, offset {archive.offset}", must, "more bytes", _DAMAGED)


class _StrictHeader(tarfile.TarInfo):
    """Header of a member that raises an error for damage, where tarfile would silently end the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _StrictHeader:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the end; missing from the stubs
            raise
        except tarfile.HeaderError as error:
            where = f"{archive.name!s}, offset {archive.offset}"
            raise malformed(where, "hold a tar header", error, _DAMAGED) from error


def _open(path: str) -> tarfile.TarFile:
    if path.lower().endswith(".zst") and "zst" not in tarfile.TarFile.OPEN_METH:
        step = "decompress it first (zstd -d), or pack with Python 3.14"
        raise malformed(path, "be compressed by gzip, bzip2 or xz", "zstd", step)
    return tarfile.open(path, tarinfo=_StrictHeader, encoding="utf-8", errors="surrogateescape")


def _explaining(path: str) -> AbstractContextManager[None]:
    return explaining(_ERRORS, path, "be a tar file that can be read", _DAMAGED)


def write_tar(records: StoredRecords, root: Path) -> list[Path]:
    """Write the shards of a dataset under their names below root."""
    details = records.details
    rule = details.get("rule")  # datasets of older releases state none
    key_of = RULES["first dot" if rule is None else rule.text()]
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
    record: Record, files: ImageFiles, details: JsonValue, classes: tuple[str, ...], key_of: Split
) -> Iterator[tuple[str, bytes]]:
    key = record.key
    if "image" in files:
        image, suffix = files["image"]
        key = key_of(record.key)[0] or record.key
        yield record.key + ("" if record.key.lower().endswith(suffix) else suffix), image
    for name, extension in details["members"].texts().items():
        value: Any = files[name][0] if name in files else record[name]
        if name == "label":
            label = classes[value] if 0 <= value < len(classes) else str(value)
            value = f"{label}{details['ending'].text()}"
        yield f"{key}.{extension}", _to_bytes(value, extension)


def _to_bytes(value: Any, extension: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if kind_of(extension).lower() != "npy":
        return str(value).encode("utf-8", "surrogateescape")
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()
