"""Contracts of unpacking: the records of a packed dataset as files, and what a layout's writer adds to them.

A `LayoutWriter` yields the annotation files beside the images, record by record; the writers of files that
hold many records iterate over `StoredRecords` themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fastload.errors import DamageError, DecodeError, FormatError, RemoteMissingError
from fastload.images.encodings import ENCODINGS, as_file, encoding_named
from fastload.images.formats import HEAD_BYTES, format_of
from fastload.shards.attachment import Attachment, read_attachment
from fastload.shards.json_values import JsonValue
from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.schema import Field
from fastload.system.units import format_count

_SUFFIXES = {
    "JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "BMP": ".bmp", "WebP": ".webp",
    "NumPy": ".npy", "NumPy archive": ".npz", "DICOM": ".dcm", "PFM": ".pfm", "OpenEXR": ".exr",
    "TIFF": ".tif", "JPEG 2000": ".jp2", "PNM": ".ppm", "AVIF": ".avif",
}  # fmt: skip

ImageFiles = Mapping[str, tuple[bytes, str]]
"""By image field, the bytes of its file and the suffix that the file's name must end in ("" for any)."""

WrittenFiles = Iterator[tuple[str, bytes]]
"""Paths relative to the folder of the dataset, each with the content of its file."""


class LayoutWriter:
    """Writer of one split's annotations; `split` is "" for a dataset without splits.

    `images` holds the paths of the images written so far.
    """

    def __init__(self, manifest: Manifest, split: str) -> None:
        self.manifest = manifest
        self.split = split
        self.images: list[PurePosixPath] = []
        self.details = JsonValue(manifest.details, "details")
        self.names = frozenset(field.name for field in manifest.fields)

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        """Yield the other images of a record whose first one has been written to the path `image`."""
        if "mask_path" in self.names and len(mask := record.stored("mask")):
            yield record["mask_path"], bytes(mask)

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        """Yield the annotation files of a record; `last_files` yields those of several records."""
        yield from ()

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        """Yield the files that describe the split; the first writer also yields those of the dataset."""
        yield from ()


def number_text(value: float) -> str:
    """Return the shortest text of a number, without ".0" for an integer."""
    text = repr(float(value))
    return text.removesuffix(".0")


class StoredRecords:
    """The intact records of a packed dataset in their order, each with the files of its images.

    `images` are the image fields to yield, None for all; `damaged` collects one message for each record, or
    remote shard, that is left out.
    """

    def __init__(
        self,
        reader: RecordReader,
        progress: Callable[[int, int], None] | None,
        images: Sequence[Field] | None = None,
    ) -> None:
        self._reader = reader
        self._progress = progress
        self.manifest = reader.manifest
        image_fields = [field for field in self.manifest.fields if field.kind == "image"]
        self._images = image_fields if images is None else images
        self.details = JsonValue(self.manifest.details, "details")
        self.damaged: list[str] = []

    def __len__(self) -> int:
        return len(self._reader)

    def __iter__(self) -> Iterator[tuple[Record, ImageFiles]]:
        end = 0
        for number, shard in enumerate(self.manifest.shards):
            start, end = end, end + shard.records
            try:
                self._reader.fetch(np.arange(start, end))
            except (DamageError, RemoteMissingError) as error:
                left_out = format_count(shard.records, "record")
                self.damaged.append(f"{error}: {left_out} from {start:,} on cannot be read")
                continue
            for index in range(start, end):
                try:
                    record = self._reader.read(index)
                    files = {
                        each.name: _stored_file(record, each, is_first=number == 0)
                        for number, each in enumerate(self._images)
                    }
                except (DamageError, DecodeError) as error:
                    self.damaged.append(str(error))
                else:
                    yield record, files
                if self._progress is not None:
                    self._progress(index + 1, len(self))
            self._reader.close_shard(number)  # the copy of a remote shard makes room for others

    def by_file(self) -> Iterator[tuple[str, Iterator[tuple[Record, ImageFiles]]]]:
        """Yield the name of each source file and an iterator of its records, to be exhausted first."""
        names = [each.text() for each in self.details["files"].each()]
        for number, records in itertools.groupby(self, lambda each: each[0]["shard"]):
            if not 0 <= number < len(names):
                raise FormatError(f"a record must be of one of {len(names)} files, got {number}: pack again")
            yield names[number], records


def _stored_file(record: Record, field: Field, *, is_first: bool) -> tuple[bytes, str]:
    """Return the bytes of an image's file, and the suffix that its name must end in ("" for any)."""
    stored = record.stored(field.name)
    shape = record.image_shape(field.name)
    if not shape[0]:
        return bytes(stored), ""  # kept although it is not a readable image
    encoding = encoding_named(field.encoding, pixel_type=field.pixel_type)
    if not encoding.holds_files:
        file = as_file(encoding.decode(stored, shape), field.pixel_type)
        return file, _SUFFIXES[format_of(file[:HEAD_BYTES]) or ""]
    # Only the first image of a record has a file name, and only if the source has files.
    if encoding.is_lossless and is_first and Path(record.key).suffix:
        return bytes(stored), ""
    return bytes(stored), _SUFFIXES.get(format_of(bytes(stored[:HEAD_BYTES])) or "", "")


@contextlib.contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that is renamed to the given path after the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".fastload-{secrets.token_hex(8)}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def safe_path(root: Path, key: str) -> Path:
    """Return the path of a key below root, without the parts that would lead outside of it.

    >>> safe_path(Path("out"), "../../etc/passwd").as_posix()
    'out/etc/passwd'
    """
    outside = ("/", "//", "..", ".")
    parts = [part for part in PurePosixPath(key.replace("\0", "_")).parts if part not in outside]
    if os.name == "nt":
        parts = [part.replace("\\", "_").replace(":", "_") for part in parts]
    return root.joinpath(*(parts or ["unnamed"]))


def restorable(
    readers: Mapping[str, RecordReader], *, states_sizes: bool
) -> tuple[RecordReader, Attachment] | None:
    """Return the reader of the dataset with the attached files, and their entry.

    Return None if they do not describe what is unpacked: images under other names or, if they state sizes, of
    other sizes; a part of the records or of the splits.
    """
    manifests = [reader.manifest for reader in readers.values()]
    encodings = [each.image.encoding for each in manifests if each.image is not None]
    are_whole = not any(each.made.get("limit") or each.skipped for each in manifests)
    are_same = all(each is not None and ENCODINGS[each].is_lossless for each in encodings) and are_whole
    are_same |= not states_sizes
    for reader in readers.values():
        attachment = reader.manifest.attachment
        if attachment is not None and are_same and {*attachment.splits} in ({*readers}, {""}):
            return reader, attachment
    return None


def restore(root: Path, reader: RecordReader, attachment: Attachment) -> list[Path]:
    """Write the attached files, and return their paths."""
    written = []
    for name, data in read_attachment(reader.folder, attachment):
        path = safe_path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with drafted(path) as draft:
            draft.write_bytes(data)
        written.append(path)
    return written
