"""Checks of one shard: its file, each of its records, and the columns that are read without these."""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastload.errors import AccessError, DamageError, DecodeError, FastloadError
from fastload.images._nv12 import nv12_size
from fastload.images.header import read_header
from fastload.images.jpeg import SOI, index_tiles
from fastload.shards.checksum import file_crc32c
from fastload.shards.files import opening
from fastload.shards.manifest import Manifest, read_manifest
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.schema import Field, image_of
from fastload.system import signals

Check = Literal["checksums", "pixels"]


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage in a packed dataset."""

    file: str
    record: int | None  # its index in the dataset; None if the entire file is damaged
    message: str  # one sentence


def check_shard(folder: Path, number: int, check: Check) -> list[Damage]:
    """Return the damage of a shard: of its file, its records and its columns."""
    manifest = read_manifest(folder)
    entry = manifest.shards[number]
    path = folder / entry.file
    try:
        with opening(path, entry):
            crc32c = file_crc32c(path)
    except DamageError as error:
        return [Damage(entry.file, None, str(error))]
    if crc32c == entry.crc32c:
        return _check_records(folder, manifest, number, check)
    message = f"{path}: its checksum is {crc32c}, the manifest says {entry.crc32c}"
    damages = check_records_isolated(folder, manifest, number, check)
    if not damages:
        message += ": none of its records is damaged"
    elif damages[0].record is not None:
        message += f": {len(damages):,} of its {entry.records:,} records damaged"
    return [Damage(entry.file, None, message), *damages]


def check_records_isolated(folder: Path, manifest: Manifest, number: int, check: Check) -> list[Damage]:
    """Return the damaged records of a shard that is known to be damaged, checked in a separate process.

    LMDB trusts the pages of its tree: a page number outside of the file crashes the process.
    """
    try:
        with ProcessPoolExecutor(1, initializer=_crash_quietly) as pool:
            return pool.submit(_check_records, folder, manifest, number, check).result()
    except BrokenProcessPool:
        file = manifest.shards[number].file
        message = f"{folder / file}: its tree is damaged: LMDB crashes when reading it, so it cannot be used"
        return [Damage(file, None, message)]


def _crash_quietly() -> None:
    signals.set_pool_worker_signals()
    faulthandler.disable()
    with contextlib.suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _check_records(folder: Path, manifest: Manifest, number: int, check: Check) -> list[Damage]:
    entry = manifest.shards[number]
    first = sum(shard.records for shard in manifest.shards[:number])
    reader = RecordReader(folder, "always")
    kept = {each.key for each in manifest.kept}
    if check == "pixels":
        from fastload.images.opencv import cv2  # not needed for checksums

        cv2.setNumThreads(0)  # there are as many processes as CPUs, and threads can hang after a fork
    damages = []
    for index in range(first, first + entry.records):
        try:
            record = reader.read(index)
            error_text = _contradiction(record, manifest, kept)
            if error_text is not None:
                error_text += ": the program that wrote it did not follow the format's specification"
            elif check == "pixels":
                error_text = _decode_error(record, manifest.fields)
            if error_text is not None:
                where = f"{folder / entry.file}, record {index} (key {record.key!r})"
                damages.append(Damage(entry.file, index, f"{where}: {error_text}"))
        except AccessError:
            raise
        except FastloadError as error:
            if not reader.is_open(number):  # the shard itself cannot be opened
                return [Damage(entry.file, None, str(error))]
            damages.append(Damage(entry.file, index, str(error)))
    # A damaged record explains the wrong checksum of its column.
    return damages or _check_columns(reader, number)


def _check_columns(reader: RecordReader, number: int) -> list[Damage]:
    """Return the columns of a shard whose checksums are not the manifest's: all labels are read by these."""
    entry = reader.manifest.shards[number]
    damages = []
    for name in entry.columns:
        try:
            reader.column_of(number, name)
        except DamageError as error:
            damages.append(Damage(entry.file, None, str(error)))
    return damages


def _decode_error(record: Record, fields: Sequence[Field]) -> str | None:
    """Return the first error in decoding a record's images, or None."""
    from fastload.images.encodings import encoding_named  # not needed for checksums

    for field in fields:
        if field.kind != "image" or not any(shape := record.image_shape(field.name)):
            continue  # kept although it is not a readable image
        try:
            decoded = encoding_named(field.encoding or "keep").decode(record.stored(field.name), shape).shape
        except DecodeError as error:
            return f"{field.name} cannot be decoded: {error}"
        if decoded[:2] != shape[:2]:
            return (
                f"{field.name} must be of the size that is stored with it, {shape[0]}x{shape[1]}, "
                f"got {decoded[0]}x{decoded[1]} by decoding it"
            )
    return None


def _contradiction(record: Record, manifest: Manifest, kept: set[str]) -> str | None:
    """Return a contradiction between a record's images and what is stored about them, or None."""
    shape = record.image_shape() if image_of(manifest.fields) is not None else None
    if shape == (0, 0, 0) and record.key not in kept:
        return "its image has no shape, and the manifest does not list it as kept though unreadable"
    if manifest.image_shape is not None and shape != manifest.image_shape:
        return f"its image has the shape {shape}, the manifest says that all have {manifest.image_shape}"
    counts = {field.name: len(record[field.name]) for field in manifest.fields if field.is_of_objects}
    if len({*counts.values()}) > 1:
        got = ", ".join(f"{count} in {name}" for name, count in counts.items())
        return f"its fields must have one row for each object, got {got}"
    # Labels of a dataset without class names may be any numbers.
    labels = record["labels"] if manifest.classes and counts.get("labels") else np.zeros(0)
    if ((labels < 0) | (labels >= len(manifest.classes))).any():
        return f"its labels must be from 0 to {len(manifest.classes) - 1}, got {labels.tolist()}"
    for field in manifest.fields:
        if field.kind != "image" or (size := record.image_shape(field.name)) == (0, 0, 0):
            continue
        grid: tuple[int, ...] = tuple(np.frombuffer(record.stored(f"{field.name}/grid"), "<u4").tolist())
        tiles = np.frombuffer(record.stored(f"{field.name}/tiles"), "<u2")
        found = _image_contradiction(
            field.encoding or "", bytes(record.stored(field.name)), size, grid, tiles
        )
        if found:
            return f"{field.name}: {found}"
    return None


def _image_contradiction(
    encoding: str, data: bytes, shape: tuple[int, int, int], grid: tuple[int, ...], tiles: NDArray[np.uint16]
) -> str | None:
    """Return how the stored bytes of an image contradict its record; None if they agree.

    `shape` is (height, width, channels), not zeros; `grid` and `tiles` are as stored, see `TileIndex`. JPEG
    and PNG are checked by their headers, without decoding: 30 µs for a JPEG of 100 KB.
    """
    height, width, channels = shape
    has_tiles = any(grid) or tiles.size > 0
    if not (height and width and 1 <= channels <= 4):
        return f"its shape is {shape}, which is impossible for an image"
    if has_tiles and encoding not in ("tiled", "jpeg"):
        return f"it has tiles, which {encoding} never has"
    if encoding in ("raw", "yuv420"):
        if channels != 3:
            return f"its shape is {shape}, but {encoding} has 3 channels"
        size, wanted = len(data), nv12_size(height, width) if encoding == "yuv420" else height * width * 3
        return None if size == wanted else f"{encoding} of shape {shape} has {wanted:,} bytes, not {size:,}"
    try:
        if encoding == "jpeg" and not data.startswith(SOI):
            raise DecodeError(f"a JPEG must start with {SOI!r}, got {data[:2]!r}")
        found = read_header(data).shape
        index = index_tiles(data) if has_tiles and data.startswith(SOI) else None
    except DecodeError as error:
        return f"its shape is stored as {shape}, but it is not a readable image: {error}"
    if found != shape:
        return f"its shape is stored as {shape}, its header says {found}"
    if has_tiles and (index is None or index.grid != grid or not np.array_equal(index.lengths, tiles)):
        return "its tiles are not where the index says"
    return None
