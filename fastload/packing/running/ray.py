"""Packing on a Ray cluster: one task for each shard, on any node, which Ray retries if its process dies."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from fastload._version import __version__
from fastload.errors import AccessError, FastloadError, LibraryMissingError, PackError, SourceError
from fastload.images.opencv import cv2
from fastload.packing.encoding.assemble import FinishedShard, ShardRange, pack_shard
from fastload.packing.encoding.chunk import ChunkEncoder, Recipe
from fastload.packing.running.local import Report
from fastload.packing.running.workers import RESUMES, describe_failure, use_one_thread
from fastload.packing.staging.journal import Journal
from fastload.system.memory import keep_freed_memory

Task = TypeVar("Task")
Result = TypeVar("Result")

_VERSIONS = {"fastload": __version__, "OpenCV": cv2.__version__}

# The number of records that one task encodes to measure their size: each task costs milliseconds besides.
_MEASURED_AT_ONCE = 8

# A connection within a cluster takes milliseconds; TCP resends a lost packet after 1 and 3 s (RFC 6298).
_ANSWER_TIMEOUT_S = 5.0


@contextlib.contextmanager
def connected(address: str | None, origin: str | None) -> Iterator[RayExecutor]:
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
    executor = RayExecutor(ray, origin)
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
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), _ANSWER_TIMEOUT_S).close()
    except OSError as error:
        raise PackError(
            f"{address}: nothing answers there ({error}): check the address, and that the cluster runs "
            "('ray status' on its head node)"
        ) from error


@dataclass(frozen=True, slots=True)
class RayExecutor:
    """An `Executor` that runs Ray tasks."""

    ray: ModuleType
    origin: str | None

    def measure(self, recipe: Recipe, indices: Sequence[int], journal: Journal) -> dict[int, int]:
        """Return the stored size of records by index, a few of which each task encodes."""
        groups = [indices[at : at + _MEASURED_AT_ONCE] for at in range(0, len(indices), _MEASURED_AT_ONCE)]
        found = [sizes for _, sizes in self._results(_measure, groups, recipe, journal)]
        return {index: size for sizes in found for index, size in sizes.items()}

    def pack(
        self, recipe: Recipe, shards: Sequence[ShardRange], journal: Journal, report: Report
    ) -> dict[ShardRange, FinishedShard]:
        """Pack shards, each in a task of its own."""
        packed: dict[ShardRange, FinishedShard] = {}
        for shard, finished in self._results(_pack, shards, recipe, journal):
            packed[shard] = finished
            size_bytes = 0 if finished.entry is None else finished.entry.size_bytes
            report(shard.end - shard.begin, finished.read_bytes, size_bytes)
        return packed

    def _results(
        self,
        function: Callable[[Task, Recipe, Journal], Result],
        tasks: Sequence[Task],
        recipe: Recipe,
        journal: Journal,
    ) -> Iterator[tuple[Task, Result]]:
        """Yield each task and its result, in order of completion."""
        ray = self.ray
        remote = ray.remote(num_cpus=1)(_on_node)
        shared = [ray.put(argument) for argument in (recipe, journal, self.origin, _VERSIONS)]
        pending = {remote.remote(function, task, *shared): task for task in tasks}
        try:
            while pending:
                [done], _ = ray.wait(list(pending), num_returns=1)
                task = pending.pop(done)
                yield task, ray.get(done)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FastloadError):
                raise error.cause from error
            raise PackError(f"a task on Ray failed: {error}") from error
        except ray.exceptions.RayError as error:
            raise PackError(f"a task on Ray failed, also when it was repeated: {error}: {RESUMES}") from error
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _on_node(
    function: Callable[[Task, Recipe, Journal], Result],
    task: Task,
    recipe: Recipe,
    journal: Journal,
    origin: str | None,
    versions: dict[str, str],
) -> Result:
    """Run a task on a node, after checking the releases and paths that all nodes must share."""
    node = socket.gethostname()
    if versions != _VERSIONS:
        raise PackError(f"{node}: its releases must be those of this machine, {versions}, got {_VERSIONS}")
    if origin is not None and not os.path.exists(origin):
        raise SourceError(f"{origin}: must exist on every node of the cluster, got none on {node}")
    scratch = journal.place.scratch
    if scratch is not None and not scratch.is_dir():
        raise AccessError(
            f"{scratch}: must be a folder on every node of the cluster, got none on {node}: choose a "
            "destination on a file system that they share, or a URL"
        )
    use_one_thread()
    keep_freed_memory()
    try:
        return function(task, recipe, journal)
    except FastloadError:
        raise
    except Exception as error:
        raise describe_failure(error, node) from error


def _measure(indices: Sequence[int], recipe: Recipe, journal: Journal) -> dict[int, int]:
    with journal.drafts() as folder:
        encoder = ChunkEncoder(recipe, folder)
        chunks = [encoder.encode(index, index + 1)[0] for index in indices]
    return {index: size for chunk in chunks for index, size in chunk.stored_bytes().items()}


def _pack(shard: ShardRange, recipe: Recipe, journal: Journal) -> FinishedShard:
    with journal.drafts() as folder:
        finished, path = pack_shard(shard, recipe, folder)
        journal.add(shard, finished, path)
    return finished
