"""`verify`: is every stored byte what was packed?

Every shard is checked by itself, in parallel: its size, its checksum, its structure by opening it, and
the checksum of each of its records, so that what is damaged has a name; and whether what is said of each
image, its shape, encoding and tiles, is true.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from fastload.errors import AccessError, DamageError, DecodeError, FastloadError, FormatError, OptionError
from fastload.images.stated import disagreement
from fastload.shards.checksum import file_crc32c
from fastload.shards.files import require_shard, unreadable
from fastload.shards.manifest import MANIFEST_NAME, Manifest, ShardEntry, looks_packed, read_manifest
from fastload.shards.records import Record, RecordReader
from fastload.system import signals
from fastload.system.cpus import usable_cpus
from fastload.system.descriptors import open_files

Check = Literal["checksums", "pixels"]

# What a pool of processes opens, pipes above all, and in each worker a shard, with room to spare: where 14
# were allowed in all, two workers and their pool waited for each other for ever (Python 3.11, Linux).
_POOL_DESCRIPTORS = 24
_WORKER_DESCRIPTORS = 4


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong.

    Attributes:
        file: The file that it is in.
        record: The record's number in the dataset; None where it concerns the whole file.
        message: What is wrong, in one sentence.
    """

    file: str
    record: int | None
    message: str


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a check found.

    Attributes:
        records: The number of records looked at.
        size_bytes: The size of the files read.
        damages: What is wrong, in the order of the records; empty where all is well.
    """

    records: int
    size_bytes: int
    damages: tuple[Damage, ...]


def verify(
    path: str | os.PathLike[str],
    *,
    check: Check = "checksums",
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyResult:
    """Checks every byte of a packed dataset.

    Args:
        path: The packed dataset.
        check: `checksums`; or `pixels`, which besides decodes every image, and names those that cannot be
            decoded or are of another size than they are said to be. Those that were kept though
            unreadable, which the manifest lists, are passed over.
        workers: The number of processes; None for one a usable CPU.
        progress: Called with the bytes checked so far and the bytes in all.

    Returns:
        What was found. A damaged manifest is reported as a damage of its own, without looking further.

    Raises:
        AccessError: A file may not be read, or this process may not have enough files open to check.
        FormatError: The path holds no packed dataset at all.
        OptionError: `workers` is less than 1, or `check` is neither.
    """
    if check not in get_args(Check):
        raise OptionError(f"check must be one of {', '.join(get_args(Check))}, got {check!r}")
    if workers is not None and workers < 1:
        raise OptionError(f"workers must be at least 1, got {workers}")
    folder = Path(path)
    try:
        manifest = read_manifest(folder)
    except FormatError as error:
        if not looks_packed(folder):
            raise
        return VerifyResult(0, 0, (Damage(MANIFEST_NAME, None, str(error)),))
    found: dict[int, tuple[Damage, ...]] = {}
    done = 0
    count = min(workers or usable_cpus(), max(len(manifest.shards), 1))
    _require_descriptors(folder, count)
    pool = ProcessPoolExecutor(count, initializer=signals.of_a_pools_worker)
    with signals.unwinding(), pool, signals.killing(pool):
        checks = {
            pool.submit(_check_shard, folder, number, check): number for number in range(len(manifest.shards))
        }
        for checked in as_completed(checks):
            number = checks[checked]
            found[number] = _found_by(checked, folder, manifest, number, check)
            done += manifest.shards[number].size_bytes
            if progress is not None:
                progress(done, manifest.size_bytes)
    damages = [damage for number in sorted(found) for damage in found[number]]
    return VerifyResult(manifest.records, done, (*damages, *_unlisted_files(folder, manifest.shards)))


def _require_descriptors(folder: Path, workers: int) -> None:
    """Refuses to begin where a worker could not open what it needs: its pool would wait for it for ever."""
    limits = open_files()
    if limits is None or limits.soft - limits.used >= _POOL_DESCRIPTORS + _WORKER_DESCRIPTORS * workers:
        return
    raise AccessError(
        f"{folder}: cannot be checked: {workers} workers need "
        f"{_POOL_DESCRIPTORS + _WORKER_DESCRIPTORS * workers} open files more than the {limits.used} of this "
        f"process, and it may have {limits.soft}: raise the limit ('ulimit -n 4096')"
    )


def _unlisted_files(folder: Path, shards: Sequence[ShardEntry]) -> list[Damage]:
    listed = {shard.file for shard in shards} | {MANIFEST_NAME}
    return [
        Damage(path.name, None, f"{path}: is not listed in the manifest: remove it")
        for path in sorted(folder.iterdir())
        if path.name not in listed
    ]


def _found_by(
    checked: Future[tuple[Damage, ...]], folder: Path, manifest: Manifest, number: int, check: Check
) -> tuple[Damage, ...]:
    """What a process found; where it crashed, what another one does, which has this shard alone."""
    try:
        return checked.result()
    except BrokenProcessPool:
        return _check_records_apart(folder, manifest, number, check)


def _check_shard(folder: Path, number: int, check: Check) -> tuple[Damage, ...]:
    """What is wrong with one shard."""
    manifest = read_manifest(folder)
    entry = manifest.shards[number]
    path = folder / entry.file
    try:
        require_shard(path, entry.size_bytes)
        crc32c = file_crc32c(path)
    except DamageError as error:
        return (Damage(entry.file, None, str(error)),)
    except AccessError:
        raise
    except OSError as error:
        refusal = unreadable(path, error)
        if isinstance(refusal, AccessError):
            raise refusal from error
        return (Damage(entry.file, None, str(refusal)),)
    if crc32c == entry.crc32c:
        return _check_records(folder, manifest, number, check)
    whole = f"{path}: its checksum is {crc32c}, the manifest says {entry.crc32c}"
    damages = _check_records_apart(folder, manifest, number, check)
    if damages and damages[0].record is None:
        return (Damage(entry.file, None, whole), *damages)
    found = (
        f"{len(damages):,} of its {entry.records:,} records damaged" if damages else "no record of it damaged"
    )
    return (Damage(entry.file, None, f"{whole}: {found}"), *damages)


def _check_records_apart(folder: Path, manifest: Manifest, number: int, check: Check) -> tuple[Damage, ...]:
    """The damaged records of a shard known to be damaged, looked for in a process of their own.

    LMDB trusts the pages of its tree: a page number that leads out of the file ends the process.
    """
    try:
        with ProcessPoolExecutor(1, initializer=_crash_quietly) as apart:
            return apart.submit(_check_records, folder, manifest, number, check).result()
    except BrokenProcessPool:
        file = manifest.shards[number].file
        message = f"{folder / file}: its tree is damaged: LMDB crashes reading it, so none of it can be used"
        return (Damage(file, None, message),)


def _crash_quietly() -> None:
    """A crash that is waited for needs neither a stack on standard error nor a memory image on the disk."""
    signals.of_a_pools_worker()
    faulthandler.disable()
    with contextlib.suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _check_records(folder: Path, manifest: Manifest, number: int, check: Check) -> tuple[Damage, ...]:
    """The damaged records of one shard."""
    entry = manifest.shards[number]
    first = sum(shard.records for shard in manifest.shards[:number])
    reader = RecordReader(folder, "always")
    kept = {each.key for each in manifest.kept}
    check_pixels = _pixel_check(manifest) if check == "pixels" else None
    damages = []
    for index in range(first, first + entry.records):
        try:
            record = reader.read(index)
            wrong = _wrong_in(record, manifest, kept)
            if wrong is not None:
                wrong += ": the program that wrote it did not follow docs/format.md"
            elif check_pixels is not None:
                wrong = check_pixels(record)
            if wrong is not None:
                where = f"{folder / entry.file}, record {index} (key {record.key!r})"
                damages.append(Damage(entry.file, index, f"{where}: {wrong}"))
        except AccessError:
            raise
        except FastloadError as error:
            if not reader.is_open(number):  # the shard itself cannot be opened: one message says it
                return (Damage(entry.file, None, str(error)),)
            damages.append(Damage(entry.file, index, str(error)))
    return tuple(damages)


def _pixel_check(manifest: Manifest) -> Callable[[Record], str | None]:
    """Makes what tells which image of a record cannot be decoded, and why; None where all can."""
    from fastload.images.encodings import encoding_named
    from fastload.images.opencv import cv2  # not needed for checksums

    cv2.setNumThreads(0)  # there are as many processes as CPUs, and its threads can hang after a fork
    images = [field for field in manifest.fields if field.kind == "image"]
    encodings = [(field.name, encoding_named(field.encoding or "keep")) for field in images]

    def check(record: Record) -> str | None:
        for name, encoding in encodings:
            height, width, _ = shape = record.image_shape(name)
            if not any(shape):
                continue  # kept though unreadable
            try:
                decoded = encoding.decode(record.stored(name), shape).shape
            except DecodeError as error:
                return f"{name} cannot be decoded: {error}"
            if decoded[:2] != (height, width):
                return (
                    f"{name} must be of the size that is stored with it, {height}x{width}, "
                    f"got {decoded[0]}x{decoded[1]} by decoding it"
                )
        return None

    return check


def _wrong_in(record: Record, manifest: Manifest, kept: set[str]) -> str | None:
    """What is said of a record's images and is not true; None where all is."""
    shape = record.image_shape()
    if shape == (0, 0, 0) and record.key not in kept:
        return "its image has no shape, and the manifest does not list it as kept though unreadable"
    if manifest.image_shape is not None and shape != manifest.image_shape:
        return f"its image has the shape {shape}, the manifest says {manifest.image_shape} of all"
    for field in manifest.fields:
        if field.kind != "image" or (shape := record.image_shape(field.name)) == (0, 0, 0):
            continue
        grid: tuple[int, ...] = tuple(np.frombuffer(record.stored(f"{field.name}/grid"), "<u4").tolist())
        tiles = np.frombuffer(record.stored(f"{field.name}/tiles"), "<u2")
        wrong = disagreement(field.encoding or "", bytes(record.stored(field.name)), shape, grid, tiles)
        if wrong:
            return f"{field.name}: {wrong}"
    return None
