"""Packing on a Ray cluster: one task for each shard, on any node, which Ray retries if its process dies."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from fastload._version import __version__
from fastload.errors import AccessError, FastloadError, LibraryMissingError, PackError, SourceError
from fastload.images.opencv import cv2
from fastload.packing.encoding.assemble import FinishedShard, ShardRange, pack_shard
from fastload.packing.encoding.chunk import Recipe
from fastload.packing.running.local import Executor, Report
from fastload.packing.running.workers import describe_failure, set_up_process
from fastload.packing.staging.staging import Journal
from fastload.system.proc import read_text

_VERSIONS = {"fastload": __version__, "OpenCV": cv2.__version__}

# A connection within a cluster takes milliseconds; TCP resends a lost packet after 1 and 3 s (RFC 6298).
_ANSWER_TIMEOUT_S = 5.0


@contextlib.contextmanager
def connected(address: str | None, origin: str | None) -> Iterator[Executor]:
    """Connect to a cluster, and disconnect at the end of the block.

    A connection that the program already has is used, and left open. Without `address`, Ray looks for a
    cluster; if it finds none, it starts one on this machine, which ends with the block. `origin` is the path
    of the source, None if it has none.
    """
    try:
        import ray
    except ImportError as error:
        raise LibraryMissingError(
            f"packing on Ray needs ray ({error}): pip install ray, or leave out --on ray"
        ) from error
    executor = partial(_pack, ray, origin)
    if ray.is_initialized():
        yield executor
        return
    _require_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # ConnectionError, RuntimeError, ValueError, …
        raise PackError(
            f"{address or 'Ray'}: cannot be connected to ({error}): check the address, and 'ray status' there"
        ) from error
    try:
        yield executor
    finally:
        ray.shutdown()


def _require_answer(address: str | None) -> None:
    """Raise PackError unless an address with a port answers: Ray itself would try for minutes."""
    found, origin = (address, "") if address else _address_on_this_machine()
    host, _, port = found.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _ANSWER_TIMEOUT_S).close()
    except OSError as error:
        advice = (
            f"{origin} has the address of a cluster that has ended: remove it, or use ray=local to start one"
        )
        raise PackError(
            f"{found}: nothing answers there ({error}): check the address, and that the cluster runs "
            f"('ray status' on its head node){origin and '; or '}{origin and advice}"
        ) from error


def _address_on_this_machine() -> tuple[str, str]:
    """Return the address that Ray finds without being given one, and where; empty if it would find none.

    A cluster that was killed leaves its file behind.
    """
    if address := os.environ.get("RAY_ADDRESS"):
        return address, "the variable RAY_ADDRESS"
    path = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")  # as Ray has it
    return read_text(path), str(path)


def _pack(
    ray: ModuleType,
    origin: str | None,
    recipe: Recipe,
    shards: Sequence[ShardRange],
    journal: Journal,
    report: Report,
) -> Iterator[tuple[ShardRange, FinishedShard]]:
    """Pack shards, each in a task of its own; an `Executor` once `ray` and `origin` are bound."""
    remote = ray.remote(num_cpus=1)(_on_node)
    shared = [ray.put(argument) for argument in (recipe, journal, origin, _VERSIONS)]
    pending = {remote.remote(shard, *shared): shard for shard in shards}
    try:
        while pending:
            [done], _ = ray.wait(list(pending), num_returns=1)
            shard = pending.pop(done)
            finished = ray.get(done)
            size_bytes = 0 if finished.entry is None else finished.entry.size_bytes
            report(shard.end - shard.begin, finished.read_bytes, size_bytes)
            yield shard, finished
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FastloadError):
            raise error.cause from error
        raise PackError(f"a task on Ray failed: {error}") from error
    except ray.exceptions.RayError as error:
        raise PackError(f"a task on Ray failed, also when it was repeated: {error}") from error
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)


def _on_node(
    shard: ShardRange, recipe: Recipe, journal: Journal, origin: str | None, versions: dict[str, str]
) -> FinishedShard:
    """Pack a shard on a node, after checking the releases and paths that all nodes must share."""
    node = socket.gethostname()
    if versions != _VERSIONS:
        raise PackError(
            f"{node}: must have the releases of this machine, {versions}, got {_VERSIONS}: install them there"
        )
    if origin is not None and not os.path.exists(origin):
        raise SourceError(
            f"{origin}: must exist on every node of the cluster, but is missing on {node}: choose a source "
            "on a file system that all nodes share"
        )
    scratch = journal.place.scratch
    if scratch is not None and not scratch.is_dir():
        raise AccessError(
            f"{scratch}: must exist on every node of the cluster, but is missing on {node}: choose a "
            "destination on a file system that all nodes share, or a URL"
        )
    set_up_process()
    try:
        with journal.drafts() as folder:
            finished, path = pack_shard(shard, recipe, folder)
            journal.add(shard, finished, path)
        return finished
    except FastloadError:
        raise
    except Exception as error:
        raise describe_failure(error, f"{journal.place.disk} on {node}") from error
