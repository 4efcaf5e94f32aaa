"""How many workers a loader may have: by CPUs, memory, descriptors, and by what starting them would do."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import multiprocessing
import os
import sys
from dataclasses import dataclass
from types import FrameType

from torch.utils.data import get_worker_info

from fastload.loader.strategy import LoaderView
from fastload.loader.tuning.plan import Limits
from fastload.system.cpus import local_ranks, usable_cpus
from fastload.system.descriptors import open_files
from fastload.system.memory import available_memory_bytes, shared_memory

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


@dataclass(frozen=True, slots=True)
class Room:
    """What there is for workers and their batches, as it was read.

    Attributes:
        cpus: CPUs for this training process.
        available_bytes: Memory that can be taken; None where nobody says.
        shared_bytes: Of /dev/shm, where batches have to lie there; None where they need not.
        descriptors: Open files that this process may still have; None where nobody says.
        forks: Whether workers are forked, and not started anew.
    """

    cpus: int
    available_bytes: int | None
    shared_bytes: int | None
    descriptors: int | None
    forks: bool


def limits_of(view: LoaderView, batch_bytes: int) -> Limits:
    """What a loader may take on this machine, as it is now.

    Args:
        view: The loader.
        batch_bytes: Bytes of one batch.
    """
    files, shared, ranks = open_files(), shared_memory(), local_ranks()
    available = available_memory_bytes()
    forks = _start_method(view) == "fork"
    room = Room(
        cpus=max(1, usable_cpus() // ranks),
        available_bytes=None if available is None else available // ranks,
        # Slots are anonymous memory, which is none of its business; without them torch's way is taken.
        shared_bytes=None if shared is None or hasattr(os, "memfd_create") else shared.free_bytes // ranks,
        descriptors=None if files is None else files.soft - files.used,
        forks=forks,
    )
    limits = limits_in(room, batch_bytes)
    why_none = _why_none(forks)
    return dataclasses.replace(limits, most_workers=0, reason=why_none) if why_none else limits


def limits_in(room: Room, batch_bytes: int) -> Limits:
    """What a loader may take of what there is.

    Args:
        room: What there is.
        batch_bytes: Bytes of one batch.
    """
    workers = room.cpus * _MOST_WORKERS_PER_CPU
    batches = 16 * workers
    reason = f"{workers} workers are the most for {room.cpus} CPUs"
    if room.available_bytes is not None:
        left = max(0, room.available_bytes - max(_MARGIN_BYTES, int(room.available_bytes * _MARGIN_SHARE)))
        each = (_FORKED_BYTES if room.forks else _SPAWNED_BYTES) + batch_bytes
        # Half for the workers, half for the batches that lie ready.
        batches = min(batches, left // 2 // max(1, batch_bytes))
        if left // 2 // each < workers:
            workers = left // 2 // each
            reason = f"{room.available_bytes / 2**30:.1f} GiB of memory are available"
    if room.shared_bytes is not None:
        batches = min(batches, room.shared_bytes // 2 // max(1, batch_bytes))
        if batches < 3 * workers:
            reason = f"/dev/shm has {room.shared_bytes >> 20} MiB for batches"
    if room.descriptors is not None:
        by_files = max(0, room.descriptors - _DESCRIPTORS_LEFT) // _DESCRIPTORS_A_WORKER
        if by_files < workers:
            workers, reason = by_files, f"{room.descriptors} more files may be opened (ulimit -n)"
    start_s = _FORK_S if room.forks else _SPAWN_S
    return Limits(room.cpus, int(workers), int(batches), reason, start_s)


def _start_method(view: LoaderView) -> str:
    context = view.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    # Asked so that it is not fixed by this: the user may still set another.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


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
    spec = getattr(main, "__spec__", None)
    # A package's `__main__.py` is left out by multiprocessing; `python -m package.train` is not.
    if file is None or (spec is not None and spec.name.endswith(".__main__")):
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
