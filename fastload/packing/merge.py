"""Merging of parts that were packed separately: a check of their shards, and the manifest."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from fastload.errors import FastloadError, PackError
from fastload.packing.encoding.assemble import Partition, ShardRange
from fastload.packing.result import PackResult, splits_of
from fastload.packing.running.workers import describe_failure
from fastload.packing.staging.staging import Staging
from fastload.system import signals

_MERGE_AGAIN = "the parts are left as they are: make room or mend the cause, then merge again"


def merge(
    dest: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> PackResult:
    """Merge all parts, packed by `pack(…, part=(number, count))`, into a packed dataset.

    Every shard is compared with its checksum; at a URL, only its size is checked.

    Args:
        dest: The destination of the parts, a path or a URL.
        overwrite: Replace a packed dataset at `dest`, in one step.
        storage_options: Options of fsspec's file system, if `dest` is a URL.

    Returns:
        The packed datasets.

    Raises:
        DestinationError: `dest` exists, or a part is still being packed.
        FormatError: No part has been packed.
        PackError: Parts are missing or damaged, and the message names them; or the disk is full.
        RemoteError: The server of a URL does not answer, or refuses.
    """
    began = time.perf_counter()
    with signals.unwinding(), Staging(dest, overwrite, storage_options=storage_options) as staging:
        destination = staging.place.destination
        try:
            journal, partition = staging.resume()
            finished, defects = journal.finished(partition.shards)
            if defects:
                raise PackError(f"{destination}: {_describe(partition, defects)}")
            manifests = partition.manifests(finished)
            journal.publish(manifests)
        except FastloadError:
            raise
        except OSError as error:
            raise PackError(f"{describe_failure(error, destination)}: {_MERGE_AGAIN}") from error
        first = partition.splits[0].manifest
        return PackResult(
            splits=splits_of(destination, manifests),
            encoding="" if first.image is None else first.image.encoding or "",
            reason="",
            classes=first.classes,
            read_bytes=0,
            resumed=sum(manifest.records for manifest in manifests.values()),
            seconds=time.perf_counter() - began,
            warnings=tuple(sorted(note for shard in finished.values() for note in shard.notes)),
        )


def _describe(partition: Partition, defects: Mapping[ShardRange, str]) -> str:
    """Describe the missing or damaged shards: their number, the first defect, and the parts to pack again."""
    count = partition.parts
    parts = [each for each in range(1, count + 1) if defects.keys() & {*partition.part(each, count)}]
    named = ", ".join(f"--part {each}/{count}" for each in parts)
    shard, defect = next(iter(defects.items()))
    where = f"shard {shard.number} of {shard.split}" if shard.split else f"shard {shard.number}"
    return (
        f"{len(defects):,} of its {len(partition.shards):,} shards are missing or damaged "
        f"(the first, {where}: {defect}): pack again with {named}, then merge"
    )
