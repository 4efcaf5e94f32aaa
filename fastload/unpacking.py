"""`unpack`: from a packed dataset back to folders of files.

Each record goes to its key below the folder named, and nowhere else, whatever a key says.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fastload.errors import AccessError, DamageError, DecodeError, DestinationError, PackError
from fastload.images.decode import encode
from fastload.images.encodings import encoding_named
from fastload.images.header import read_header
from fastload.shards.manifest import Manifest, looks_packed, packed_datasets
from fastload.shards.records import Record, RecordReader
from fastload.shards.schema import Field
from fastload.sources.columns import are_names_of_classes

LABELS_NAME = "labels.csv"

_SOURCE_ENCODINGS = ("keep", "tiled")  # what is stored is the source's file, under its own name
_TABLE_KINDS = ("scalar", "text")
_MAX_NAME_BYTES = 255  # of ext4, XFS, APFS and NTFS


@dataclass(frozen=True, slots=True)
class UnpackResult:
    """What an unpacking wrote.

    Attributes:
        files: The number of image files written.
        size_bytes: Their size.
        table: The CSV with labels and further fields, where the folders do not tell them.
        damaged: Records that were left out because they are damaged, one message each.
        unwritten: The names of fields that neither folders nor a table can hold: arrays, bytes and
            further images.
    """

    files: int
    size_bytes: int
    table: Path | None
    damaged: tuple[str, ...]
    unwritten: tuple[str, ...] = ()


def unpack(
    path: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> UnpackResult:
    """Writes every record of a packed dataset as a file below `dest`.

    Encoded images come back as the bytes that are stored: with `keep`, those of the source. Pixels
    (`raw`, `yuv420`) are written as PNG. A file that is of another format than its source gets one
    more suffix: `a.png` stored with `jpeg` becomes `a.png.jpg`. Two records with one key and different images
    become `a.jpg` and `a~2.jpg`. Of a folder with several packed datasets, each goes to a folder of its
    split's name.

    Where the labels do not follow from the folders, `labels.csv` holds them, in the form that `pack` takes
    and gives the same labels for: as class names where these sort as the labels count, else as numbers,
    with the names in a column `class`.

    Args:
        path: The packed dataset, or a folder with several.
        dest: A folder that does not exist yet, or is empty.
        progress: Called with the records written so far and the records in all.

    Returns:
        What was written; damaged records are left out and listed.

    Raises:
        FormatError: The path holds no packed dataset, or one that cannot be read.
        DestinationError: `dest` is there and not an empty folder.
        PackError: A file cannot be written.
    """
    root = Path(os.path.expanduser(dest))
    if any(map(looks_packed, root.absolute().parents)):
        raise DestinationError(f"{root}: lies in a packed dataset: choose a folder outside of it")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DestinationError(f"{root}: must not exist yet, or be an empty folder: choose another one")
    datasets = packed_datasets(path)
    if datasets == [Path(path)]:
        return _Unpacking(RecordReader(path, "always"), root, progress).run()
    results = [
        _Unpacking(RecordReader(dataset, "always"), root / dataset.stem, progress).run()
        for dataset in datasets
    ]
    return UnpackResult(
        sum(result.files for result in results),
        sum(result.size_bytes for result in results),
        next((result.table for result in results if result.table), None),
        tuple(message for result in results for message in result.damaged),
        tuple(dict.fromkeys(name for result in results for name in result.unwritten)),
    )


class _Unpacking:
    """One packed dataset on its way into one folder."""

    def __init__(self, reader: RecordReader, root: Path, progress: Callable[[int, int], None] | None) -> None:
        self._reader = reader
        self._manifest: Manifest = reader.manifest
        self._root = root
        self._progress = progress
        self._encoding = encoding_named(self._manifest.image.encoding or "keep")
        self._damaged: list[str] = []
        self._files = self._bytes = 0

    def run(self) -> UnpackResult:
        fields = [field for field in self._manifest.fields if field.kind in _TABLE_KINDS]
        is_folder = self._manifest.made.get("source_kind") == "folder"
        names_follow = is_folder and [field.name for field in fields] == ["label"]
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            if is_folder:
                for name in self._manifest.classes:
                    safe_path(self._root, name).mkdir(parents=True, exist_ok=True)
            if names_follow or not fields:
                self._write_all()
                return self._result(None)
            table = self._root / LABELS_NAME
            with table.open("x", newline="", encoding="utf-8", errors="surrogateescape") as file:
                # Quoted, or reading would drop the spaces that a name or a text begins with.
                self._write_all(_Table(csv.writer(file, quoting=csv.QUOTE_ALL), self._reader, fields))
            return self._result(table)
        except OSError as error:
            if isinstance(error, DamageError | AccessError):
                raise
            raise PackError(f"{error.filename or self._root}: cannot be written: {error.strerror}") from error

    def _result(self, table: Path | None) -> UnpackResult:
        unwritten = [field.name for field in self._manifest.fields[1:] if field.kind not in _TABLE_KINDS]
        return UnpackResult(self._files, self._bytes, table, tuple(self._damaged), tuple(unwritten))

    def _write_all(self, table: _Table | None = None) -> None:
        for index in range(len(self._reader)):
            try:
                record = self._reader.read(index)
                data, suffix = self._file_of(record)
            except (DamageError, DecodeError) as error:
                self._damaged.append(str(error))
            else:
                written = self._write(_with_suffix(safe_path(self._root, record.key), suffix), data)
                if table is not None:
                    table.add(written.relative_to(self._root).as_posix(), record)
            if self._progress is not None:
                self._progress(index + 1, len(self._reader))

    def _file_of(self, record: Record) -> tuple[bytes, str]:
        """The bytes of a record's file, and the suffix that its name must end in ("" for any)."""
        stored = record.stored("image")
        shape = record.image_shape()
        encoding = self._manifest.image.encoding
        if not shape[0]:
            return bytes(stored), ""  # kept though unreadable: whatever it was
        if encoding == "jpeg":
            return bytes(stored), ".jpg"
        if encoding in _SOURCE_ENCODINGS:
            return bytes(stored), "" if Path(record.key).suffix else _suffix_of(bytes(stored))
        return encode(self._encoding.decode(stored, shape), ".png"), ".png"

    def _write(self, place: Path, data: bytes) -> Path:
        """Writes a file, under another name where a different one has that name already."""
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            place = self._beside_files(place)
        candidate, number = place, 1
        while candidate.exists():
            if candidate.is_file() and candidate.read_bytes() == data:
                return candidate
            number += 1
            candidate = _named(place, place.stem, f"~{number}{place.suffix}")
        candidate.write_bytes(data)
        self._files += 1
        self._bytes += len(data)
        return candidate

    def _beside_files(self, place: Path) -> Path:
        """A place whose folders do not bear the names of files that are there already; makes them."""
        folder = self._root
        for part in place.relative_to(self._root).parts[:-1]:
            wanted = folder = folder / part
            number = 1
            while folder.exists() and not folder.is_dir():
                number += 1
                folder = _named(wanted, wanted.name, f"~{number}")
            folder.mkdir(exist_ok=True)
        return folder / place.name


class _Table:
    """The labels and further fields of records, in the form that `pack` takes."""

    def __init__(self, writer: Any, reader: RecordReader, fields: Sequence[Field]) -> None:
        self._writer = writer
        self._fields = fields
        self._classes = reader.manifest.classes
        has_label = any(field.name == "label" for field in fields)
        are_numbers = self._classes == tuple(map(str, range(len(self._classes))))  # or there are none
        self._has_names = has_label and not are_numbers
        self._names_are_labels = self._has_names and _tell_labels(self._classes, _labels(reader))
        extra = ["class"] if self._has_names and not self._names_are_labels else []
        writer.writerow(["path", *(field.name for field in fields), *extra])

    def add(self, path: str, record: Record) -> None:
        """Writes the row of a record whose image is at the path."""
        row = {field.name: record[field.name] for field in self._fields}
        if self._has_names:
            label = row["label"]
            name = self._classes[label] if 0 <= label < len(self._classes) else ""
            row["label" if self._names_are_labels else "class"] = name
        self._writer.writerow([path, *row.values()])


def _labels(reader: RecordReader) -> set[int]:
    """The labels that occur; none where some of them are damaged."""
    try:
        return {int(label) for label in np.unique(reader.column("label"))}
    except DamageError:
        return set()


def _tell_labels(classes: Sequence[str], labels: set[int]) -> bool:
    """Whether `pack` gives just these labels to records of these classes where it is told the names.

    It counts the names that it finds, sorted; but it does not take for names what are numbers or files.
    """
    is_counted = labels == set(range(len(classes))) and list(classes) == sorted({*classes} - {""})
    return is_counted and are_names_of_classes(classes)


def safe_path(root: Path, key: str) -> Path:
    """The place of a key below root: parts that would lead elsewhere are taken out of it.

    >>> safe_path(Path("out"), "../../etc/passwd").as_posix()
    'out/etc/passwd'
    """
    outside = ("/", "//", "..", ".")
    parts = [part for part in PurePosixPath(key.replace("\0", "_")).parts if part not in outside]
    parts = [os.fsdecode(os.fsencode(part)[:_MAX_NAME_BYTES]) for part in parts]
    if os.name == "nt":
        parts = [part.replace("\\", "_").replace(":", "_") for part in parts]
    return root.joinpath(*(parts or ["unnamed"]))


def _suffix_of(data: bytes) -> str:
    """The suffix of a file that had no name of its own: pixels of a dataset, stored as PNG or JPEG."""
    try:
        return {"jpeg": ".jpg", "png": ".png"}.get(read_header(data).format, "")
    except DecodeError:
        return ""


def _with_suffix(place: Path, suffix: str) -> Path:
    """The place under a name that ends in the suffix: `a.png` becomes `a.png.jpg`."""
    own = place.suffix.lower().replace(".jpeg", ".jpg")
    return place if suffix in ("", own) else _named(place, place.name, suffix)


def _named(place: Path, stem: str, ending: str) -> Path:
    """The place under another name, its stem cut to the longest name allowed."""
    cut = os.fsencode(stem)[: _MAX_NAME_BYTES - len(os.fsencode(ending))]
    return place.with_name(os.fsdecode(cut) + ending)
