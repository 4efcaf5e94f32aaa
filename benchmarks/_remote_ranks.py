"""Ranks of bench_remote.py: processes that load epochs of one remote dataset together."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _harness import folder_bytes, remove
from _object_server import ObjectServer
from _program import Program
from _sides import Side

_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class RemoteEpoch:
    """Measurements of an epoch of all ranks.

    Attributes:
        samples: Of all ranks.
        seconds, first_batch_s: From the beginning, for the first epoch with making dataset and loader; of the
            slowest rank.
        waited_s: Waiting for batches after the first one, of the slowest rank.
        cpu_s: CPU time of all processes, without the server's.
        fetched_bytes: The bytes that the server sent.
        cache_bytes: The size of the cache folder at the end.
    """

    samples: int
    seconds: float
    first_batch_s: float
    waited_s: float
    cpu_s: float
    fetched_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class Datasets:
    """The server, the folder for what is stored on this machine, and the peers' environments.

    Attributes:
        job: The part of the ranks' instructions that all sides share.
    """

    server: ObjectServer
    folder: Path
    peers: Path
    job: Mapping[str, Any]

    def write(self, side: Side, name: str, **job: Any) -> tuple[str, dict[str, str]]:
        """Write a side's dataset to the server; return its URL, and the versions of what wrote it.

        Raises:
            LoaderFailedError: It could not be written.
        """
        folder = self.folder / name
        job = self._job(side, write_to=str(folder), **job)
        program = Program(side.python(self.peers), side.program, job)
        try:
            versions: dict[str, str] = program.answer(_TIMEOUT_S)
        finally:
            program.close()
        url = self.server.upload(folder)
        remove(folder)
        return url, versions

    @contextlib.contextmanager
    def ranks(self, side: Side, url: str, ranks: int, **job: Any) -> Iterator[Callable[[], RemoteEpoch]]:
        """Start ranks with an empty cache; yield a function that loads their next epoch.

        Raises:
            LoaderFailedError: A rank failed; the function raises it, too.
        """
        cache = self.folder / "cache"
        job = self._job(side, url=url, cache=str(cache), ranks=ranks, **job)
        with contextlib.ExitStack() as stack:
            stack.callback(remove, cache)
            programs = []
            for environment in _environments(ranks):
                more = {**self.server.environment, **environment}
                programs.append(Program(side.python(self.peers), side.program, job, more))
                stack.callback(programs[-1].close)
            for program in programs:
                program.answer(_TIMEOUT_S)
            yield lambda: self._epoch(programs, cache)

    def _epoch(self, programs: list[Program], cache: Path) -> RemoteEpoch:
        fetched, cpu_s = self.server.sent_bytes, _cpu_s(programs)
        for program in programs:
            program.ask()
        answers = [program.answer(_TIMEOUT_S) for program in programs]
        return RemoteEpoch(
            sum(each["samples"] for each in answers),
            *(max(each[name] for each in answers) for name in ("seconds", "first_batch_s", "waited_s")),
            _cpu_s(programs) - cpu_s,
            self.server.sent_bytes - fetched,
            folder_bytes(cache),
        )

    def _job(self, side: Side, **job: Any) -> dict[str, Any]:
        return {**self.job, **side.job, **job}


def _cpu_s(programs: list[Program]) -> float:
    return sum(program.cpu_s() for program in programs)


def _environments(ranks: int) -> Iterator[dict[str, str]]:
    """Yield the variables by which torch.distributed and the peers know each rank, as torchrun sets them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # The host's own name need not be known to the resolver.
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    }
    for rank in map(str, range(ranks)):
        yield {**shared, "RANK": rank, "LOCAL_RANK": rank}
