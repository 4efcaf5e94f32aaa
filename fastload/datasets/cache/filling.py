"""The process that fills a cache beside the training: a new interpreter, at low priority.

A thread could hold locks while the loader forks its workers, and would compete with training for the GIL. The
process holds the cache's filling lock, so there is one for each cache; if it dies, another user of the cache
starts a new one. It ends soon after the process that started it, however that ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from typing import Any

import psutil

from fastload.system.signals import set_worker_signals

# With as many busy workers as CPUs, the process gets a quarter of one (Linux's weights are 335 to 1024).
_NICENESS = 5

# A process that packs removes its unfinished files within a second.
_TERMINATION_LIMIT_S = 5.0

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    f"from {__name__} import run; run(*map(int, sys.argv[2:]))"
)

IsWanted = Callable[[], bool]
"""Returns False as soon as the process that started the filling has ended."""


def start_filling(
    owner: object, fill: Callable[..., None], arguments: tuple[Any, ...], *descriptors: int
) -> subprocess.Popen[bytes]:
    """Start a process that calls `fill(*arguments, *descriptors, is_wanted)`, all of it picklable.

    It inherits the descriptors and is terminated when `owner` is finalized. Raises OSError if no process can
    be started.
    """
    with tempfile.TemporaryFile() as file:
        pickle.dump((fill, arguments), file)
        file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), *map(str, (os.getpid(), *descriptors))],
            stdin=file,
            stdout=subprocess.DEVNULL,
            pass_fds=descriptors,
        )
    weakref.finalize(owner, _end, process, os.getpid())
    return process


def why_ended(code: int) -> str:
    """Return a clause that says how the process that fills a cache has ended."""
    how = f"was killed (signal {-code})" if code < 0 else f"ended with code {code}"
    return f"the process that fills it {how}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Terminate a process, which may first remove its unfinished files; kill it if it does not end."""
    if os.getpid() != owner:
        process.returncode = 0  # a forked child's copy
        return
    with contextlib.suppress(OSError):
        process.terminate()
    try:
        process.wait(_TERMINATION_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run(parent: int, *descriptors: int) -> None:
    """Run in the started process: call the function that is pickled on stdin."""
    set_worker_signals()  # on Ctrl-C it ends with the process that started it
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    lower_priority()
    fill, arguments = pickle.load(sys.stdin.buffer)
    fill(*arguments, *descriptors, lambda: os.getppid() == parent)


def lower_priority() -> None:
    """Give the training's processes precedence in the use of CPU and disk."""
    os.nice(_NICENESS)
    if sys.platform == "linux":
        with contextlib.suppress(psutil.Error, OSError):
            psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
