"""How many workers a loader may have: by CPUs, memory, descriptors, and by what starting them would do."""

from __future__ import annotations

import ast
import linecache
import multiprocessing
import sys
from types import FrameType
from typing import Any

from torch.utils.data import get_worker_info

from fastload.machine import available_memory_bytes, local_ranks, open_files, usable_cpus
from fastload.tuning.plan import Limits

# What a worker that has been forked, or started anew, takes of memory for itself (measured: 30 to 60 MB and
# 250 MB with torch and OpenCV), rounded up for what it will touch.
_FORKED_BYTES = 100 << 20
_SPAWNED_BYTES = 400 << 20

# Left to the training and the page cache: that much, or that share of what is available.
_MARGIN_BYTES = 1 << 30
_MARGIN_SHARE = 0.25

# Pipes, semaphores and a sentinel; measured: 5 with torch 2.13.
_DESCRIPTORS_A_WORKER = 8
_DESCRIPTORS_LEFT = 64

# As many workers wait for a disk or a network as this for each CPU; more have never been seen to pay.
_MOST_WORKERS_PER_CPU = 16

# Starting a worker: a fork of a process that has imported torch; or a new interpreter that imports it.
_FORK_S = 0.02
_SPAWN_S = 2.5


def limits_of(loader: Any, batch_bytes: int) -> Limits:
    """What a loader may take on this machine, as it is now.

    Args:
        loader: The DataLoader.
        batch_bytes: Bytes of one batch.
    """
    cpus = max(1, usable_cpus() // local_ranks())
    forks = _start_method(loader) == "fork"
    start_s = _FORK_S if forks else _SPAWN_S
    why_none = _why_none(forks)
    most_batches, most_workers, reason = _by_memory(cpus, batch_bytes, forks)
    files = open_files()
    if files is not None:
        room = max(0, files.soft - files.used - _DESCRIPTORS_LEFT) // _DESCRIPTORS_A_WORKER
        if room < most_workers:
            most_workers, reason = room, f"{files.soft} open files are allowed (ulimit -n)"
    if why_none:
        most_workers, reason = 0, why_none
    return Limits(cpus, most_workers, most_batches, reason, start_s)


def _by_memory(cpus: int, batch_bytes: int, forks: bool) -> tuple[int, int, str]:
    """The most batches, the most workers, and why."""
    most = cpus * _MOST_WORKERS_PER_CPU
    reason = f"{most} workers are the most for {cpus} CPUs"
    available = available_memory_bytes()
    if available is None:
        return 16 * most, most, reason
    room = max(0, available - max(_MARGIN_BYTES, int(available * _MARGIN_SHARE)))
    each = (_FORKED_BYTES if forks else _SPAWNED_BYTES) + batch_bytes
    # Half for the workers, half for the batches that lie ready.
    by_memory = room // 2 // each
    batches = room // 2 // max(1, batch_bytes)
    if by_memory < most or batches < 3 * most:
        most = min(most, by_memory)
        reason = f"{available / 2**30:.1f} GiB of memory are available"
    return int(batches), int(most), reason


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    if context is None:
        context = multiprocessing.get_context()
    return str(context.get_start_method())


def _why_none(forks: bool) -> str:
    """Why this process had better start no workers, as a clause; "" if it may."""
    if multiprocessing.current_process().daemon:
        return "this is a daemonic process, which may have no children"
    if get_worker_info() is not None:
        return "this is itself a worker"
    if not forks and not _may_import_main():
        return (
            "new processes would run your script again, because it is not written beneath "
            "'if __name__ == \"__main__\":'"
        )
    return ""


def _may_import_main() -> bool:
    """Whether a new process could import the main module without doing its work a second time."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:
        return True
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return _is_guarded("".join(linecache.getlines(file)), frame.f_lineno)
        frame = frame.f_back
    return True


def _is_guarded(source: str, line: int) -> bool:
    """Whether a line of a script stands beneath `if __name__ == "__main__":`."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    around = [s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
    return any(isinstance(s, ast.If) and "__name__" in ast.dump(s.test) for s in around)
