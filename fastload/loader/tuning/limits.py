"""Limits on the number of workers: CPUs, memory, file descriptors, and whether processes may be started."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import multiprocessing
import sys
from types import FrameType
from typing import Any

from torch.utils.data import get_worker_info

from fastload.loader.measurements import DEFAULT_SETTINGS, TuningSettings, WorkerLimits
from fastload.system.cpus import local_ranks, usable_cpus
from fastload.system.memory import available_memory_bytes
from fastload.system.proc import free_descriptors

# A worker's own memory, forked or spawned (measured: 30 to 60 MB, and 250 MB with torch and OpenCV), rounded
# up for the data that it will write.
_FORKED_BYTES = 100 << 20
_SPAWNED_BYTES = 400 << 20

# Memory left to the training and the page cache: this much, or this share of what is available, if more.
_MARGIN_BYTES = 1 << 30
_MARGIN_SHARE = 0.25

# Pipes, semaphores and a sentinel; measured: 5 with torch 2.13.
_DESCRIPTORS_PER_WORKER = 8
_DESCRIPTORS_LEFT = 64

# Seconds until a worker begins (measured): a fork of this process, or a new interpreter that imports torch.
_FORK_S = 0.025
_SPAWN_S = 2.5

NO_LIMITS_YET = WorkerLimits(cpus=1, most_workers=0, most_batches=0, reason="", start_s=_FORK_S)


def read_limits(
    multiprocessing_context: Any, batch_bytes: int, settings: TuningSettings = DEFAULT_SETTINGS
) -> WorkerLimits:
    """Read the current limits for a loader with this context and batches of this size."""
    ranks = local_ranks()
    forks = _start_method(multiprocessing_context) == "fork"
    limits = limits_within(
        cpus=max(1, usable_cpus() // ranks),
        available_bytes=available_memory_bytes() // ranks,
        descriptors=free_descriptors(),
        forks=forks,
        batch_bytes=batch_bytes,
        settings=settings,
    )
    why_none = _why_no_processes(forks)
    return dataclasses.replace(limits, most_workers=0, reason=why_none) if why_none else limits


def limits_within(
    cpus: int,
    available_bytes: int,
    descriptors: int | None,
    forks: bool,
    batch_bytes: int,
    settings: TuningSettings = DEFAULT_SETTINGS,
) -> WorkerLimits:
    """Return the limits set by CPUs, available memory and free descriptors (None: no known limit).

    `forks` is True if workers are forked, False if they are spawned.
    """
    workers = cpus * settings.most_workers_per_cpu
    reason = f"{cpus} CPUs allow at most {workers} workers"
    left = max(0, available_bytes - max(_MARGIN_BYTES, int(available_bytes * _MARGIN_SHARE)))
    each = (_FORKED_BYTES if forks else _SPAWNED_BYTES) + batch_bytes
    # Half for the workers, half for prefetched batches.
    batches = left // 2 // max(1, batch_bytes)
    if left // 2 // each < workers:
        workers = left // 2 // each
        reason = f"{available_bytes / 2**30:.1f} GiB of memory are available"
    if descriptors is not None:
        by_files = max(0, descriptors - _DESCRIPTORS_LEFT) // _DESCRIPTORS_PER_WORKER
        if by_files < workers:
            workers, reason = by_files, f"{descriptors} more files can be opened (ulimit -n)"
    return WorkerLimits(cpus, workers, batches, reason, _FORK_S if forks else _SPAWN_S)


def _start_method(context: Any) -> str:
    if context is not None:
        return str(context.get_start_method())
    # allow_none, because asking must not fix the method: the user may still set another.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _why_no_processes(forks: bool) -> str:
    """Return why this process should start no workers, as a clause; "" if it may."""
    if multiprocessing.current_process().daemon:
        return "this is a daemonic process, which may have no children"
    if get_worker_info() is not None:
        return "this is itself a worker"
    if not forks and not _may_import_main():
        return (
            "new processes would run your script again, because it is not protected by "
            "'if __name__ == \"__main__\":'"
        )
    return ""


def _may_import_main() -> bool:
    """Return whether a new process could import the main module without running the script again."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    # multiprocessing does not import a package's `__main__.py`, but imports `package.train` of `python -m`.
    if file is None or (spec is not None and spec.name.endswith(".__main__")):
        return True
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return _is_guarded("".join(linecache.getlines(file)), frame.f_lineno)
        frame = frame.f_back
    return True


def _is_guarded(source: str, line: int) -> bool:
    """Return whether a line of a script is inside `if __name__ == "__main__":`."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    around = [s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
    return any(isinstance(s, ast.If) and "__name__" in ast.dump(s.test) for s in around)
