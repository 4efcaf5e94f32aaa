"""Verification of packed datasets: comparison of every stored byte with its checksum.

Shards are checked in parallel: their size, checksum and structure, the checksum of each record (to name the
damaged ones) and of each column that is read without its records, and the recorded shape, encoding and tiles
of each image.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastload.errors import (
    AccessError,
    DamageError,
    DecodeError,
    FastloadError,
    FormatError,
    OptionError,
    RemoteMissingError,
)
from fastload.images.encodings import Encoding, encoding_named
from fastload.images.header import read_header
from fastload.images.jpeg import index_tiles
from fastload.images.opencv import cv2
from fastload.images.pixel_types import MOST_CHANNELS
from fastload.shards.attachment import ATTACHMENT_NAME, check_attachment
from fastload.shards.checksum import file_crc32c
from fastload.shards.container import opening
from fastload.shards.manifest import MANIFEST_NAME, Manifest, ShardEntry, looks_packed, read_manifest
from fastload.shards.record import Record
from fastload.shards.records import RecordReader
from fastload.shards.remote import RemoteFolder, changed, is_url
from fastload.shards.schema import Field, image_of
from fastload.system import signals
from fastload.system.cpus import usable_cpus

Check = Literal["checksums", "pixels"]


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage in a packed dataset."""

    file: str
    record: int | None  # its index in the dataset; None if the entire file is damaged
    message: str  # one sentence


@functools.lru_cache(1)
def _opened(folder: Path) -> RecordReader:
    """Return a dataset's reader, which a process of one verification opens once for all of its shards."""
    return RecordReader(folder, "always")


def check_shard(folder: Path, number: int, check: Check, remote: RemoteFolder | None) -> list[Damage]:
    """Return the damage of a shard: of its file, its records and its columns.

    One at a URL is fetched into the folder, and removed at the end.
    """
    entry = _opened(folder).manifest.shards[number]
    path = folder / entry.file
    try:
        if remote is not None:
            _fetch(remote, path, entry)
        with opening(path, entry):
            crc32c = file_crc32c(path)
        if crc32c == entry.crc32c:
            return _check_records(folder, number, check)
        # LMDB trusts the pages of its tree: a page number outside of the file crashes the process.
        damages = _isolated(path, _check_records, folder, number, check)
    except (DamageError, RemoteMissingError) as error:
        return [Damage(entry.file, None, str(error))]
    finally:
        if remote is not None:
            path.unlink(missing_ok=True)
    message = f"{path}: its checksum is {crc32c}, the manifest says {entry.crc32c}"
    if not damages:
        message += ": none of its records is damaged"
    elif damages[0].record is not None:
        message += f": {len(damages):,} of its {entry.records:,} records damaged"
    return [Damage(entry.file, None, message), *damages]


def _isolated(path: Path, work: Callable[..., list[Damage]], *arguments: object) -> list[Damage]:
    """Return the result of `work` in a separate process, or the damage of its shard if that crashes."""
    try:
        with ProcessPoolExecutor(1, initializer=_crash_quietly) as pool:
            return pool.submit(work, *arguments).result()
    except BrokenProcessPool:
        message = f"{path}: its tree is damaged: LMDB crashes when reading it, so it cannot be used"
        return [Damage(path.name, None, message)]


def _crash_quietly() -> None:
    signals.set_pool_worker_signals()
    faulthandler.disable()


def _check_records(folder: Path, number: int, check: Check) -> list[Damage]:
    reader = _opened(folder)
    manifest = reader.manifest
    entry = manifest.shards[number]
    first = sum(shard.records for shard in manifest.shards[:number])
    kept = {each.key for each in manifest.kept}
    if check == "pixels":
        cv2.setNumThreads(0)  # there are as many processes as CPUs, and threads can hang after a fork
    damages = []
    for index in range(first, first + entry.records):
        try:
            record = reader.read(index)
            error_text = contradiction(record, manifest, kept)
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
    if damages:
        return damages
    for name in entry.columns:  # all labels are read by these
        try:
            reader.column_of(number, name)
        except DamageError as error:
            damages.append(Damage(entry.file, None, str(error)))
    reader.close_shard(number)
    return damages


def _decode_error(record: Record, fields: Sequence[Field]) -> str | None:
    """Return the first error in decoding a record's images, or None."""
    for field in fields:
        if field.kind != "image" or not any(shape := record.image_shape(field.name)):
            continue  # kept although it is not a readable image
        encoding = encoding_named(field.encoding, pixel_type=field.pixel_type)
        try:
            decoded = encoding.decode(record.stored(field.name), shape).shape
        except DecodeError as error:
            return f"{field.name} cannot be decoded: {error}"
        if decoded[:2] != shape[:2]:
            return (
                f"{field.name} must have the size that is stored with it, {shape[0]}x{shape[1]}, "
                f"but decodes to {decoded[0]}x{decoded[1]}"
            )
    return None


def contradiction(record: Record, manifest: Manifest, kept: set[str]) -> str | None:
    """Return a contradiction between a record's images and what is stored about them, or None."""
    shape = record.image_shape() if image_of(manifest.fields) is not None else None
    if shape == (0, 0, 0) and record.key not in kept:
        return "its image has no shape, but the manifest does not list it as an unreadable file"
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
        data = bytes(record.stored(field.name))
        encoding = encoding_named(field.encoding, pixel_type=field.pixel_type)
        if found := _image_contradiction(encoding, data, size, grid, tiles):
            return f"{field.name}: {found}"
    return None


def _image_contradiction(
    encoding: Encoding,
    data: bytes,
    shape: tuple[int, int, int],
    grid: tuple[int, ...],
    tiles: NDArray[np.uint16],
) -> str | None:
    """Return how the stored bytes of an image contradict its record; None if they agree.

    `grid` and `tiles` are as stored, see `TileIndex`. A JPEG of 100 KB takes 30 µs: it is not decoded.
    """
    height, width, channels = shape
    has_tiles = any(grid) or tiles.size > 0
    if not (height and width and 1 <= channels <= MOST_CHANNELS):
        return f"its shape is {shape}, which is impossible for an image"
    if has_tiles and not encoding.has_tiles:
        return f"it has tiles, which {encoding.name} never has"
    if not encoding.holds_files:
        if channels != encoding.pixel_type.channels:
            return f"its shape is {shape}, but all have {encoding.pixel_type}"
        wanted = encoding.pixel_bytes(shape)
        if wanted in (None, len(data)):
            return None
        return f"{encoding.name} of shape {shape} has {wanted:,} bytes, not {len(data):,}"
    try:
        header = read_header(data)
        index = index_tiles(data) if has_tiles and header.format == "jpeg" else None
    except DecodeError as error:
        return f"its shape is stored as {shape}, but it is not a readable image: {error}"
    if encoding.file_format not in (None, header.format):
        return f"its format is {header.format}, but {encoding.name} stores only {encoding.file_format}"
    if header.pixel_type != encoding.pixel_type:
        return f"its pixels are {header.pixel_type}, those of all records are {encoding.pixel_type}"
    if header.shape != shape:
        return f"its shape is stored as {shape}, its header says {header.shape}"
    if has_tiles and (index is None or index.grid != grid or not np.array_equal(index.lengths, tiles)):
        return "its tiles are not where its record says"
    return None


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """Result of `verify`."""

    records: int  # the number of records checked
    size_bytes: int  # of the files that were read
    damages: tuple[Damage, ...]  # in the order of the records


def verify(
    path: str | os.PathLike[str],
    *,
    check: Check = "checksums",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyResult:
    """Check every byte of a packed dataset.

    Args:
        path: The packed dataset, or its URL: each shard is then fetched once, into the folder for temporary
            files, and removed when it has been checked.
        check: `checksums`; or `pixels`, which also decodes every image, and reports those that cannot be
            decoded or differ from their recorded size. Files that the manifest lists as kept although they
            are not readable images are not decoded.
        workers: The number of processes; None for one per usable CPU.
        progress: Called with the number of bytes checked so far and the number of all bytes.

    Returns:
        The damage found. If the manifest is damaged, nothing else is reported.

    Raises:
        AccessError: A file may not be read.
        FormatError: The path holds no packed dataset at all.
        OptionError: `workers` or `check` is invalid.
        RemoteError: The server of a URL cannot be reached.
    """
    if check not in get_args(Check):
        raise OptionError(f"check must be one of {', '.join(get_args(Check))}, got {check!r}")
    if workers is not None and workers < 1:
        raise OptionError(f"workers must be at least 1, got {workers}")
    remote = RemoteFolder(str(path)) if is_url(path) else None
    place = Path(path) if remote is None else remote
    try:
        manifest = read_manifest(place)
    except FormatError as error:
        if remote is not None or not looks_packed(Path(path)):
            raise
        return VerifyResult(0, 0, (Damage(MANIFEST_NAME, None, str(error)),))
    with signals.unwinding(), contextlib.ExitStack() as stack:
        folder = Path(path)
        if remote is not None:  # a folder for a few of the shards, with the manifest
            scratch = tempfile.TemporaryDirectory(prefix="fastload-verify-")
            folder = Path(stack.enter_context(scratch))
            (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        found: list[Damage] = []
        done = 0
        checked = _checked(folder, remote, manifest, check, workers or usable_cpus())
        stack.enter_context(contextlib.closing(checked))  # ends the processes if `progress` raises
        for shard, damages in zip(manifest.shards, checked, strict=True):
            found += damages
            done += shard.size_bytes
            if progress is not None:
                progress(done, manifest.size_bytes)
    if remote is not None:
        found = [replace(damage, message=damage.message.replace(str(folder), remote.url)) for damage in found]
    listed = {shard.file for shard in manifest.shards} | {MANIFEST_NAME}
    if manifest.attachment is not None:
        listed.add(ATTACHMENT_NAME)
    names = sorted(os.listdir(path)) if remote is None else remote.names()
    unlisted = [
        Damage(name, None, f"{place / name}: is not listed in the manifest: remove it")
        for name in names
        if name not in listed
    ]
    if manifest.attachment is not None:
        try:
            check_attachment(place, manifest.attachment)
        except (DamageError, RemoteMissingError) as error:
            found.append(Damage(ATTACHMENT_NAME, None, str(error)))
    return VerifyResult(manifest.records, manifest.size_bytes, (*found, *unlisted))


def _checked(
    folder: Path, remote: RemoteFolder | None, manifest: Manifest, check: Check, workers: int
) -> Generator[list[Damage], None, None]:
    """Check all shards in processes; yield the damage of each, in order."""
    count = len(manifest.shards)
    work = partial(check_shard, folder, check=check, remote=remote)
    pool = ProcessPoolExecutor(min(workers, max(count, 1)), initializer=signals.set_pool_worker_signals)
    done = 0
    with contextlib.suppress(BrokenProcessPool), pool, signals.killing_workers(pool):
        for damages in pool.map(work, range(count)):
            yield damages
            done += 1
    # If a process crashed, the rest of the shards are checked one by one, each in its own process.
    for number in range(done, count):
        yield _isolated(folder / manifest.shards[number].file, work, number)


def _fetch(remote: RemoteFolder, path: Path, entry: ShardEntry) -> None:
    """Copy a shard to a path; raise DamageError if the server has another one."""
    size_bytes = remote.size_of(entry.file)
    if size_bytes not in (None, entry.size_bytes):
        raise changed(remote, entry, f"{size_bytes:,} bytes")
    try:
        with path.open("wb", buffering=0) as file:
            for part in remote.parts(entry):
                file.write(part)
    except FastloadError:
        raise
    except OSError as error:
        raise AccessError(
            f"{path.parent}: {entry.size_bytes:,} bytes of {remote / entry.file} cannot be written there "
            f"({error.strerror}): make room, or choose another folder with the variable TMPDIR"
        ) from error
