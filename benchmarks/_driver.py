"""Loaders in processes of their own: turns, memory, stored files; their protocol is in peers/epochs.py."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from _program import Program

from fastload.system import page_cache

# Includes packing and FFCV's compilation; a peer's writer can wait forever.
_READY_TIMEOUT_S = 1800
_TURN_TIMEOUT_S = 600
# Pause between turns, for work that the last one left running: DALI decodes its next batches.
_REST_S = 0.3
# Adding up the pages of a process takes milliseconds, so memory is read in a turn that is not timed.
_MEMORY_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class LoadingTurn:
    """Time of one turn: complete epochs of a loader, or the beginning of a long one.

    `cpu_s` is that of all its processes; `cached` the share of the stored bytes that were in the page cache
    at the beginning, None if it was not read.
    """

    seconds: float
    samples: int
    cpu_s: float
    cached: float | None = None


class Driver:
    """The process of a loader, warmed up, and idle between its turns.

    Attributes:
        versions: Those of the packages that are compared.
        stored: The file or folder that it reads.
        write_s: Seconds that writing it took; None if it existed before.
        open_s: Seconds that making dataset and loader took, without writing.
        first_batch_s: Seconds from the beginning of the first epoch to its first batch.

    Raises:
        LoaderFailedError: The process failed.
    """

    def __init__(self, python: Path, program: Path, job: Mapping[str, Any]) -> None:
        self._command = python, program, job
        self._start()

    def _start(self) -> None:
        self._program = Program(*self._command)
        try:
            ready = self._program.answer(_READY_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        self.versions: dict[str, str] = ready["versions"]
        self.stored = Path(ready["stored"])
        self.write_s: float | None = ready["write_s"]
        self.open_s: float = ready["open_s"]
        self.first_batch_s: float = ready["first_batch_s"]

    def turn(self) -> LoadingTurn:
        """Load complete epochs for a while."""
        time.sleep(_REST_S)
        before = self._program.cpu_s()
        took = self._ask()
        return LoadingTurn(took["seconds"], took["samples"], self._program.cpu_s() - before)

    def cold_turn(self) -> LoadingTurn:
        """Load in new processes, after the stored files were dropped from the page cache.

        Pages that a process has mapped cannot be dropped.
        """
        self.close()
        self._start()
        cached = drop_files(self.stored)
        return replace(self.turn(), cached=cached)

    def peak_memory(self) -> tuple[int, str]:
        """Return the most memory of all processes during one more turn, and its kind: `PSS` or `RSS`."""
        peaks: list[tuple[int, str]] = []
        is_done = threading.Event()

        def watch() -> None:
            while not is_done.wait(_MEMORY_EVERY_S):
                peaks.append(_memory_of(self._program.tree()))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self._ask()
        finally:
            is_done.set()
            watcher.join()
        return max([*peaks, _memory_of(self._program.tree())])

    def close(self) -> None:
        """End the process and those that it started."""
        self._program.close()

    def _ask(self) -> Any:
        self._program.ask()
        return self._program.answer(_TURN_TIMEOUT_S)


def _memory_of(processes: list[psutil.Process]) -> tuple[int, str]:
    """Return the memory of processes: PSS, in which shared pages count once; elsewhere than on Linux, RSS."""
    total, kind = 0, "RSS"
    for process in processes:
        with contextlib.suppress(psutil.Error):
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
            kind = "PSS" if hasattr(memory, "pss") else "RSS"
    return total, kind


def _files_in(path: Path) -> Iterator[str]:
    """Yield a file itself, or all files below a folder; strings, because there may be millions."""
    if path.is_file():
        yield str(path)
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def size_on_disk(path: Path) -> int:
    """Return the size of a file, or of all files in a folder; hard links count once."""
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for stat in map(os.stat, _files_in(path))}
    return sum(sizes.values())


def drop_files(path: Path) -> float | None:
    """Drop a file, or all in a folder, from the page cache; return the share of bytes that remain there."""
    cached, total = 0.0, 0
    for file in _files_in(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            os.fsync(descriptor)  # pages that are not written yet stay
            page_cache.drop(descriptor, 0, size)
            share = page_cache.resident_share(descriptor, 0, size) if size else 0.0
        finally:
            os.close(descriptor)
        if share is None:
            return None
        cached, total = cached + share * size, total + size
    return cached / total if total else None
