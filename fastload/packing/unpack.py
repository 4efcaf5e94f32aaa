"""Unpacking of packed datasets into folders of files.

Each record's key becomes a path below the given folder; not even a malicious key leads outside of it.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fastload.errors import DestinationError, FastloadError, FormatError, PackError
from fastload.shards.manifest import looks_packed, packed_datasets, read_manifest
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder, is_url
from fastload.shards.schema import Field
from fastload.sources.layouts import layout_of
from fastload.sources.protocol import CLASS_FOLDERS, IMAGES_ALONE
from fastload.sources.table.cells import LabelTable
from fastload.sources.writing import LayoutWriter, StoredRecords, drafted, restorable, restore, safe_path

_SPLITS = ("train", "val", "test")

LABELS_NAME = "labels.csv"

_TABLE_KINDS = ("scalar", "text")

# Errors of the disk or the process, not of one file's name: all later files would fail too.
_FATAL_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


@dataclass(frozen=True, slots=True)
class UnpackResult:
    """Result of `unpack`."""

    files: int  # the number of image files, masks included
    size_bytes: int  # of these files
    table: Path | None  # the CSV file with labels and further fields, if folders do not give them
    damaged: tuple[str, ...]  # one message for each record that was left out because it is damaged
    unwritten: tuple[str, ...] = ()  # fields that neither files nor a table can hold: arrays and bytes
    # One message for each record that was left out because one of its files cannot be written: another file
    # has its name, or its path is too long.
    refused: tuple[str, ...] = ()


def unpack(
    path: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UnpackResult:
    """Write every record of a packed dataset as a file below `dest`, in the layout that it came from.

    Encoded images are written as the stored bytes: with `keep`, those of the source. Pixels (`raw`,
    `yuv420`) are written as PNG. A file of another format than its source gets one more suffix: `a.png`
    stored with `jpeg` becomes `a.png.jpg`. A further image, such as a field `mask`, is written beside the
    first one, as `a.mask.png`. If different files have the same name, the first is written, and the records
    of the others are left out. From a folder with several packed datasets, each goes to a folder named after
    its split, unless the layout has folders of its own.

    Annotation files are the source's own, byte for byte; they are written anew if images were resized,
    encoded anew or skipped, or if only some of the splits are unpacked. Tar shards, Hugging Face datasets,
    LMDB and HDF5 files are restored as such. Labels and further fields that no layout holds go into
    `labels.csv`, in a form from which `pack` makes the same ones; records without an image become its rows.

    Every file appears under its name only once it is complete, and `labels.csv` after all others.

    Args:
        path: The packed dataset, its URL, or a folder with several. Shards at a URL are fetched once; while
            they are unpacked, copies of at most two of them (in LMDB, of all) are in `dest`.
        dest: A folder that does not exist yet, or is empty.
        storage_options: Options of fsspec's file system, if `path` is a URL.
        progress: Called with the number of records written so far and the number of all records.

    Returns:
        The files written, and the records left out because they are damaged or cannot be written.

    Raises:
        FormatError: The path holds no packed dataset, or one that cannot be read.
        DestinationError: `dest` exists and is not an empty folder, or is a URL.
        PackError: Nothing more can be written, for example because the disk is full.
        RemoteError: The server of a URL does not answer, or refuses.
    """
    if is_url(dest):
        raise DestinationError(f"{dest}: files are written to a folder of this machine: choose one")
    root = Path(os.path.expanduser(dest))
    if any(map(looks_packed, root.absolute().parents)):
        raise DestinationError(f"{root}: is inside a packed dataset: choose a folder outside of it")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DestinationError(f"{root}: must not exist yet, or be an empty folder: choose another one")
    datasets = [path] if is_url(path) else packed_datasets(path)
    is_single = is_url(path) or datasets == [Path(path)]
    results, unpackings = [], []
    with _explaining(root), contextlib.ExitStack() as stack:
        readers = {each: stack.enter_context(_reading(each, root, storage_options)) for each in datasets}
        layouts = [layout_of(str(reader.manifest.made.get("source_kind"))) for reader in readers.values()]
        states_sizes = not all(layout is not None and layout.states_no_sizes for layout in layouts)
        by_split = {Path(each).stem: reader for each, reader in readers.items()}
        attached = restorable(by_split, states_sizes=states_sizes)
        for (each, reader), layout in zip(readers.items(), layouts, strict=True):
            if layout is not None and layout.write_files is not None:
                records = StoredRecords(reader, progress)
                root.mkdir(parents=True, exist_ok=True)
                files = layout.write_files(records, root)
                size_bytes = sum(map(os.path.getsize, files))
                results.append(UnpackResult(len(files), size_bytes, None, tuple(records.damaged)))
                continue
            stem = Path(each).stem
            split = stem if stem in _SPLITS else ""
            writer = layout.writer(reader.manifest, split) if layout and layout.writer else None
            # Keys of annotated images hold the folders of their splits.
            folder = root if is_single or writer is not None else root / stem
            unpackings.append(_Unpacking(reader, folder, progress, writer, is_rebuilt=attached is None))
        results += [unpacking.run() for unpacking in unpackings]
        writers = [each.writer for each in unpackings if each.writer is not None]
        last = [path for each in unpackings for path in each.write_last(writers)]
        if attached is not None:
            last += restore(root, *attached)
    tables = [result.table for result in results if result.table]
    tables += [path for path in last if path.suffix.lower() in (".csv", ".tsv")]
    return UnpackResult(
        sum(result.files for result in results),
        sum(result.size_bytes for result in results),
        next(iter(tables), None),
        tuple(message for result in results for message in result.damaged),
        tuple(dict.fromkeys(name for result in results for name in result.unwritten)),
        tuple(message for result in results for message in result.refused),
    )


@contextlib.contextmanager
def _reading(
    path: str | os.PathLike[str], root: Path, storage_options: Mapping[str, object] | None
) -> Iterator[RecordReader]:
    """Open a packed dataset; copies of remote shards are below `root` until the end of the block."""
    if not is_url(path):
        yield RecordReader(path, "always")
        return
    remote = RemoteFolder(str(path), storage_options)
    manifest = read_manifest(remote)
    # Room for the shard that is read and the one before, whose last record may still be in use. Labels are
    # read from all shards first, for which LMDB needs copies of all.
    largest = max((shard.size_bytes for shard in manifest.shards), default=0)
    most_bytes = 2 * largest if manifest.container == "hdf5" else None
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fastload-", dir=root, ignore_cleanup_errors=True) as scratch:
        reader = RecordReader(remote, "always", scratch, most_bytes)
        yield reader
        for number in range(len(manifest.shards)):  # Windows removes no open file
            reader.close_shard(number)


@contextlib.contextmanager
def _explaining(root: Path) -> Iterator[None]:
    """Turn errors of the disk, and those caused by malformed details of a source, into errors of fastload."""
    try:
        yield
    except FastloadError:
        raise
    except OSError as error:
        has_begun = root.is_dir() and any(root.iterdir())
        raise (PackError if has_begun else DestinationError)(
            f"{error.filename or root}: cannot be written: {error.strerror or error}: "
            f"{'make room or mend the cause, and unpack to' if has_begun else 'choose'} another folder"
        ) from error
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(
            f"{root}: must be unpacked from a dataset that states the details of its source as packing does, "
            f"got: {error!r}: read its records in Python, or pack again"
        ) from error


@dataclass(slots=True)
class _Unpacking:
    """The unpacking of one packed dataset into one folder."""

    reader: RecordReader
    root: Path
    progress: Callable[[int, int], None] | None
    writer: LayoutWriter | None
    is_rebuilt: bool  # the writer writes annotation files anew
    records: StoredRecords = field(init=False)
    refused: list[str] = field(default_factory=list)
    files: int = 0
    size_bytes: int = 0

    @property
    def images(self) -> list[Field]:
        """The image fields of each record; a writer writes all but the first."""
        images = [each for each in self.reader.manifest.fields if each.kind == "image"]
        return images if self.writer is None else images[:1]

    def run(self) -> UnpackResult:
        self.records = StoredRecords(self.reader, self.progress, self.images)
        own = self.reader.manifest.fields if self.writer is None else ()  # a writer writes its fields itself
        fields = [field for field in own if field.kind in _TABLE_KINDS]
        unwritten = tuple(field.name for field in own if field.kind not in (*_TABLE_KINDS, "image"))
        table = None
        self.root.mkdir(parents=True, exist_ok=True)
        has_class_folders = [field.name for field in fields] == ["label"] and self._make_class_folders()
        # Images without class folders have no labels either, and their source had no table.
        is_flat = self.reader.manifest.made.get("source_kind") == IMAGES_ALONE
        is_table = (bool(fields) and not is_flat) or len(self.images) > 1
        if self.writer is not None or has_class_folders or not is_table:
            self._write_all()
        else:
            table = self._write_with_table(fields)
        damaged, refused = tuple(self.records.damaged), tuple(self.refused)
        return UnpackResult(self.files, self.size_bytes, table, damaged, unwritten, refused)

    def write_last(self, writers: Sequence[LayoutWriter]) -> list[Path]:
        """Write the files that describe the split or the dataset, after all others; return their paths."""
        files = self.writer.last_files(writers) if self.writer is not None and self.is_rebuilt else ()
        return [self._write(safe_path(self.root, name), data) for name, data in files]

    def _write_with_table(self, fields: Sequence[Field]) -> Path:
        path = self.root / LABELS_NAME
        path.touch(exist_ok=False)  # reserve the name before an image can take it
        try:
            with (
                drafted(path) as draft,
                draft.open("x", newline="", encoding="utf-8", errors="surrogateescape") as file,
            ):
                # Quoted, because reading drops the leading spaces of unquoted cells.
                writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
                self._write_all(LabelTable(writer.writerow, self.reader, fields, self.images[1:]))
        except BaseException:
            path.unlink()
            raise
        return path

    def _make_class_folders(self) -> bool:
        """Make the class folders if the source had them; return True if each class has its own.

        Two classes share a folder if the file system does not distinguish `Cat` from `cat`, and a class has
        none if its path is too long.
        """
        if self.reader.manifest.made.get("source_kind") != CLASS_FOLDERS:
            return False
        folders = [safe_path(self.root, name) for name in self.reader.manifest.classes]
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if error.errno in _FATAL_ERRORS:
                    raise
                return False
        return len({os.stat(folder).st_ino for folder in folders}) == len(folders)

    def _write_all(self, table: LabelTable | None = None) -> None:
        for record, files in self.records:
            self._write_record(record, list(files.values()), table)

    def _write_record(self, record: Record, files: list[tuple[bytes, str]], table: LabelTable | None) -> None:
        path = safe_path(self.root, record.key)
        written: list[Path] = []
        try:
            for field, (data, suffix) in zip(self.images, files, strict=True):
                # A name ends in the suffix of what is written: `a.png` becomes `a.png.jpg`.
                is_right = suffix in ("", path.suffix.lower().replace(".jpeg", ".jpg"))
                place = path if is_right else path.with_name(path.name + suffix)
                if written:
                    place = written[0].with_name(f"{written[0].stem}.{field.name}{suffix}")
                written.append(self._write(place, data))
            if self.writer is not None:
                image = PurePosixPath(*(each.relative_to(self.root).as_posix() for each in written[:1]))
                self.writer.images.append(image)
                named = [self.writer.further_images(record, image)]
                named += [self.writer.annotations(record, image)] if self.is_rebuilt else []
                for name, data in itertools.chain(*named):
                    self._write(safe_path(self.root, name), data)
        except OSError as error:
            if error.errno in _FATAL_ERRORS:
                raise
            self.refused.append(
                f"record {record.index} (key {record.key!r}): its files cannot be written to {self.root}: "
                f"{error.strerror}: read it in Python, or unpack to another place if its path is too long"
            )
        else:
            if table is not None:
                table.add([path.relative_to(self.root).as_posix() for path in written], record)

    def _write(self, path: Path, data: bytes) -> Path:
        """Write a file and return its path; raise FileExistsError if a different one has that name."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()  # raises if the file system refuses the path, before any folder is made
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            if path.is_file() and path.read_bytes() == data:
                return path
            raise FileExistsError(errno.EEXIST, "another record has this name", str(path))
        with drafted(path) as draft:
            draft.write_bytes(data)
        self.files += 1
        self.size_bytes += len(data)
        return path
