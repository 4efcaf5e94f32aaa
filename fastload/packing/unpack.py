"""`unpack`: from a packed dataset back to folders of files.

Each record goes to its key below the folder named, and nowhere else, whatever a key says.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fastload.errors import DamageError, DecodeError, DestinationError, FastloadError, PackError
from fastload.images.decode import encode
from fastload.images.encodings import encoding_named
from fastload.shards.manifest import Manifest, looks_packed, packed_datasets
from fastload.shards.records import Record, RecordReader
from fastload.shards.schema import Field
from fastload.sources.columns import are_class_names

LABELS_NAME = "labels.csv"

_SOURCE_ENCODINGS = ("keep", "tiled")  # what is stored is the source's file, under its own name
_TABLE_KINDS = ("scalar", "text")
_MAX_NAME_BYTES = 255  # of ext4, XFS, APFS and NTFS

_SUFFIXES = {
    b"\xff\xd8": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"BM": ".bmp", b"RIFF": ".webp",
    b"II*\0": ".tif", b"MM\0*": ".tif", b"\0\0\0\x0cjP": ".jp2", b"P5": ".pgm", b"P6": ".ppm",
}  # fmt: skip

# Errors that concern the place and not one file's name: those after it would meet the same one.
_STOPPING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


@dataclass(frozen=True, slots=True)
class UnpackResult:
    """What an unpacking wrote.

    Attributes:
        files: The number of image files written, masks included.
        size_bytes: Their size.
        table: The CSV with labels and further fields, where the folders do not tell them.
        damaged: Records that were left out because they are damaged, one message each.
        unwritten: The names of fields that neither files nor a table can hold: arrays and bytes.
        refused: Records that were left out because the file system does not take one of their files, under a
            path too long for example, one message each.
    """

    files: int
    size_bytes: int
    table: Path | None
    damaged: tuple[str, ...]
    unwritten: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


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
    become `a.jpg` and `a~2.jpg`. A further image, such as a field `mask`, is written beside the first one, as
    `a.mask.png`. Of a folder with several packed datasets, each goes to a folder of its split's name.

    Where the labels do not follow from the folders, `labels.csv` holds them, in the form that `pack` takes
    and gives the same labels for: as class names where these sort as the labels count, else as numbers,
    with the names in a column `class`. A column of each further image's name holds the path of its file.

    Every file appears under its name when it is complete, `labels.csv` when all others are.

    Args:
        path: The packed dataset, or a folder with several.
        dest: A folder that does not exist yet, or is empty.
        progress: Called with the records written so far and the records in all.

    Returns:
        What was written; records that are damaged, or that the file system does not take, are left out and
        listed.

    Raises:
        FormatError: The path holds no packed dataset, or one that cannot be read.
        DestinationError: `dest` is there and not an empty folder.
        PackError: Nothing can be written any more: the disk is full, for example.
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
        tuple(message for result in results for message in result.refused),
    )


class _Unpacking:
    """One packed dataset on its way into one folder."""

    def __init__(self, reader: RecordReader, root: Path, progress: Callable[[int, int], None] | None) -> None:
        self._reader = reader
        self._manifest: Manifest = reader.manifest
        self._root = root
        self._progress = progress
        self._images = [field for field in self._manifest.fields if field.kind == "image"]
        self._damaged: list[str] = []
        self._refused: list[str] = []
        self._files = self._bytes = 0

    def run(self) -> UnpackResult:
        fields = [field for field in self._manifest.fields if field.kind in _TABLE_KINDS]
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            is_told_by_folders = [field.name for field in fields] == ["label"] and self._make_class_folders()
            if len(self._images) == 1 and (is_told_by_folders or not fields):
                self._write_all()
                return self._result(None)
            return self._result(self._write_with_table(fields))
        except OSError as error:
            if isinstance(error, FastloadError):
                raise
            raise PackError(f"{error.filename or self._root}: cannot be written: {error.strerror}") from error

    def _write_with_table(self, fields: Sequence[Field]) -> Path:
        table = self._root / LABELS_NAME
        table.touch(exist_ok=False)  # so that no image takes its name
        try:
            with self._draft() as draft:
                with draft.open("x", newline="", encoding="utf-8", errors="surrogateescape") as file:
                    # Quoted, or reading would drop the spaces that a name or a text begins with.
                    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
                    self._write_all(_Table(writer, self._reader, fields, self._images[1:]))
                draft.replace(table)
        except BaseException:
            table.unlink()
            raise
        return table

    def _make_class_folders(self) -> bool:
        """Makes a folder for each class, of a source of folders; whether each class has one of its own.

        Two may share one where the file system takes `Cat` for `cat`, and a path may be too long for it.
        """
        if self._manifest.made.get("source_kind") != "folder":
            return False
        folders = [safe_path(self._root, name) for name in self._manifest.classes]
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if error.errno in _STOPPING:
                    raise
                return False
        return len({os.stat(folder).st_ino for folder in folders}) == len(folders)

    def _result(self, table: Path | None) -> UnpackResult:
        kinds = (*_TABLE_KINDS, "image")
        unwritten = [field.name for field in self._manifest.fields if field.kind not in kinds]
        damaged, refused = tuple(self._damaged), tuple(self._refused)
        return UnpackResult(self._files, self._bytes, table, damaged, tuple(unwritten), refused)

    def _write_all(self, table: _Table | None = None) -> None:
        for index in range(len(self._reader)):
            try:
                record = self._reader.read(index)
                files = [self._file_of(record, field) for field in self._images]
            except (DamageError, DecodeError) as error:
                self._damaged.append(str(error))
            else:
                self._write_record(record, files, table)
            if self._progress is not None:
                self._progress(index + 1, len(self._reader))

    def _write_record(self, record: Record, files: list[tuple[bytes, str]], table: _Table | None) -> None:
        place = safe_path(self._root, record.key)
        (data, suffix), *further = files
        try:
            written = [self._write(_with_suffix(place, suffix), data)]
            for field, (data, suffix) in zip(self._images[1:], further, strict=True):
                named = _named(written[0], written[0].stem, f".{field.name}{suffix}")
                written.append(self._write(named, data))
        except OSError as error:
            if error.errno in _STOPPING:
                raise
            self._refused.append(
                f"record {record.index} (key {record.key!r}): the file system of {self._root} must take its "
                f"files, and it says: {error.strerror}; unpack to a shorter path or another file system"
            )
        else:
            if table is not None:
                table.add([path.relative_to(self._root).as_posix() for path in written], record)

    def _file_of(self, record: Record, field: Field) -> tuple[bytes, str]:
        """The bytes of an image's file, and the suffix that its name must end in ("" for any)."""
        stored = record.stored(field.name)
        shape = record.image_shape(field.name)
        if not shape[0]:
            return bytes(stored), ""  # kept though unreadable: whatever it was
        if field.encoding == "jpeg":
            return bytes(stored), ".jpg"
        if field.encoding in _SOURCE_ENCODINGS:
            # A further image has no name of its own, nor has one that came from a program.
            has_name = field is self._images[0] and Path(record.key).suffix
            return bytes(stored), "" if has_name else _suffix_of(bytes(stored))
        return encode(encoding_named(field.encoding or "keep").decode(stored, shape), ".png"), ".png"

    def _write(self, place: Path, data: bytes) -> Path:
        """Writes a file, under another name where a different one has that name already."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            place.lstat()  # raises where the path is none for this file system, before any folder is made
        if not place.parent.is_dir():
            place = self._beside_files(place)
        candidate, number = place, 1
        while os.path.lexists(candidate):
            if candidate.is_file() and candidate.read_bytes() == data:
                return candidate
            number += 1
            candidate = _named(place, place.stem, f"~{number}{place.suffix}")
        with self._draft() as draft:
            with draft.open("xb") as file:
                file.write(data)
            draft.replace(candidate)
        self._files += 1
        self._bytes += len(data)
        return candidate

    @contextlib.contextmanager
    def _draft(self) -> Iterator[Path]:
        """A name for a file that gets its own when it is complete; nothing is left there."""
        draft = self._root / f".fastload-{secrets.token_hex(8)}"
        try:
            yield draft
        finally:
            draft.unlink(missing_ok=True)

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

    def __init__(
        self, writer: Any, reader: RecordReader, fields: Sequence[Field], images: Sequence[Field]
    ) -> None:
        self._writer = writer
        self._fields = fields
        self._classes = reader.manifest.classes
        has_label = any(field.name == "label" for field in fields)
        are_numbers = self._classes == tuple(map(str, range(len(self._classes))))  # or there are none
        self._has_names = has_label and not are_numbers
        self._names_are_labels = self._has_names and _tell_labels(self._classes, _labels(reader))
        extra = ["class"] if self._has_names and not self._names_are_labels else []
        names = [field.name for field in images]
        writer.writerow(["path", *(field.name for field in fields), *extra, *names])

    def add(self, paths: Sequence[str], record: Record) -> None:
        """Writes the row of a record whose images are at the paths."""
        row = {field.name: record[field.name] for field in self._fields}
        if self._has_names:
            label = row["label"]
            name = self._classes[label] if 0 <= label < len(self._classes) else ""
            row["label" if self._names_are_labels else "class"] = name
        self._writer.writerow([paths[0], *row.values(), *paths[1:]])


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
    return is_counted and are_class_names(classes)


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
    """The suffix of a file that has no name of its own: an image that came from a program."""
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return ".avif"
    return next((suffix for start, suffix in _SUFFIXES.items() if data.startswith(start)), "")


def _with_suffix(place: Path, suffix: str) -> Path:
    """The place under a name that ends in the suffix: `a.png` becomes `a.png.jpg`."""
    own = place.suffix.lower().replace(".jpeg", ".jpg")
    return place if suffix in ("", own) else _named(place, place.name, suffix)


def _named(place: Path, stem: str, ending: str) -> Path:
    """The place under another name, its stem cut to the longest name allowed."""
    cut = os.fsencode(stem)[: _MAX_NAME_BYTES - len(os.fsencode(ending))]
    return place.with_name(os.fsdecode(cut) + ending)
