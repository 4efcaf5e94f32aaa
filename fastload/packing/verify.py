"""Verification of packed datasets: comparison of every stored byte with its checksum.

Shards are checked in parallel: their size, checksum and structure, the checksum of each record (to name the
damaged ones) and of each column that is read without its records, and the recorded shape, encoding and tiles
of each image.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from fastload.errors import (
    AccessError,
    DamageError,
    FastloadError,
    FormatError,
    OptionError,
    RemoteMissingError,
)
from fastload.packing._checks import Check as Check
from fastload.packing._checks import Damage as Damage
from fastload.packing._checks import check_records_isolated, check_shard
from fastload.shards.attachment import ATTACHMENT_NAME, read_attachment
from fastload.shards.manifest import MANIFEST_NAME, Manifest, ShardEntry, looks_packed, read_manifest
from fastload.shards.remote import RemoteFolder, changed, is_url
from fastload.system import signals
from fastload.system.cpus import usable_cpus

# Shards for each process that wait for it or are being checked.
_AHEAD = 2


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
    with signals.unwinding(), _local_folder(place, manifest) as folder:
        found = _check_shards(folder, remote, manifest, check, workers or usable_cpus(), progress)
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
    damages = (*found, *_check_attachment(place, manifest), *unlisted)
    return VerifyResult(manifest.records, manifest.size_bytes, damages)


@contextlib.contextmanager
def _local_folder(place: Path | RemoteFolder, manifest: Manifest) -> Iterator[Path]:
    """Yield the folder of the shards or, for a URL, one for a few of them, with the manifest."""
    if isinstance(place, Path):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="fastload-verify-") as name:
        (Path(name) / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        yield Path(name)


def _check_shards(
    folder: Path,
    remote: RemoteFolder | None,
    manifest: Manifest,
    check: Check,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> list[Damage]:
    """Check all shards; those at a URL are fetched one after the other, a few ahead of their check."""
    count = min(workers, max(len(manifest.shards), 1))
    damages: dict[int, list[Damage]] = {}
    checks: dict[Future[list[Damage]], int] = {}
    left = deque(range(len(manifest.shards)))
    done = 0
    pool = ProcessPoolExecutor(count, initializer=signals.set_pool_worker_signals)
    with pool, signals.killing_workers(pool):
        while left or checks:
            while left and len(checks) < _AHEAD * count:
                number = left.popleft()
                future: Future[list[Damage]] = Future()
                if remote is not None and (damage := _fetch(remote, folder, manifest.shards[number])):
                    future.set_result([damage])
                else:
                    try:
                        future = pool.submit(check_shard, folder, number, check)
                    except BrokenProcessPool as error:
                        future.set_exception(error)
                checks[future] = number
            for finished in wait(checks, return_when=FIRST_COMPLETED).done:
                number = checks.pop(finished)
                entry = manifest.shards[number]
                try:
                    damages[number] = finished.result()
                except BrokenProcessPool:  # a process crashed: check this shard in a process of its own
                    damages[number] = check_records_isolated(folder, manifest, number, check)
                if remote is not None:
                    (folder / entry.file).unlink(missing_ok=True)
                done += entry.size_bytes
                if progress is not None:
                    progress(done, manifest.size_bytes)
    return [damage for number in sorted(damages) for damage in damages[number]]


def _fetch(remote: RemoteFolder, folder: Path, entry: ShardEntry) -> Damage | None:
    """Copy a shard into a folder; return its damage if the server does not have it, or has another one."""
    try:
        found = remote.stat(entry.file)
        if found.size_bytes not in (None, entry.size_bytes):
            raise changed(remote, entry, str(found))
        with (folder / entry.file).open("wb", buffering=0) as file:
            for part in remote.parts(entry):
                file.write(part)
    except (DamageError, RemoteMissingError) as error:
        return Damage(entry.file, None, str(error))
    except FastloadError:
        raise
    except OSError as error:
        raise AccessError(
            f"{folder}: {entry.size_bytes:,} bytes of {remote / entry.file} cannot be written there "
            f"({error.strerror}): make room, or choose another folder with the variable TMPDIR"
        ) from error
    return None


def _check_attachment(folder: Path | RemoteFolder, manifest: Manifest) -> list[Damage]:
    """Return the damage of the attached annotation files."""
    if manifest.attachment is not None:
        try:
            for _ in read_attachment(folder, manifest.attachment):
                pass
        except (DamageError, RemoteMissingError) as error:
            return [Damage(ATTACHMENT_NAME, None, str(error))]
    return []
