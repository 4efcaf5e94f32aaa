"""Background filling of a store, by one process per store.

A thread could hold locks while the loader forks its workers, and would compete with training for the GIL.
So a new interpreter is started at low priority, about a second after the first batch is requested. It reads
the missing samples in the order of the dataset, and sleeps after each for as long as the read took, because
the reads of workers come first. Workers store the samples that they read; together they read each one once.

The process holds the store's filler lock. If it dies, another user of the store starts a new one. It exits at
most one sample after the process that started it, however that ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import weakref
from typing import TYPE_CHECKING, Any

from fastload.datasets.cache._registry import StoreFolder, lock_exclusively
from fastload.datasets.cache.opening import Opening, open_inherited
from fastload.system.signals import set_worker_signals

if TYPE_CHECKING:
    from fastload.datasets.cache._cached_samples import CachedSamples

_NICENESS = 10

# The time between two checks whether a process fills the store.
_CHECK_INTERVAL_S = 2.0

# A dataset that is used for less time is not worth the 0.3 s of a core that starting the process takes.
_START_AFTER_S = 1.0

# A process that packs removes its unfinished files within a second.
_TERMINATION_LIMIT_S = 5.0

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from {module} import run; run(*map(int, sys.argv[2:]))"
)


class Filler:
    """The process that fills a store; `failure` is the reason why it ended early, or ""."""

    def __init__(self) -> None:
        self._next_check_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.failure = ""

    def ensure_running(self, samples: CachedSamples) -> None:
        """Start the process unless one runs or nothing is missing; called for every batch."""
        now = time.monotonic()
        if self._next_check_s is None:
            self._next_check_s = now + _START_AFTER_S
        if now < self._next_check_s:
            return
        self._next_check_s = now + _CHECK_INTERVAL_S
        # To a forked child, the process of its parent seems to have ended; the lock prevents a second one.
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self.failure = why_ended(code) if code else ""
        store = samples.store
        if self._process is not None or self.failure or store.is_filled:
            return
        if store.missing().size:
            self._start(samples)
        else:
            store.note_filled()

    def _start(self, samples: CachedSamples) -> None:
        opening = samples.opening
        try:
            lock = StoreFolder(opening.folder).open(opening.key, "filler")
        except OSError:
            return  # the folder is gone: workers still store what they read
        try:
            if lock_exclusively(lock):
                # Unpickling the samples themselves, and not only their state, would open the store again.
                job = type(samples), samples.__getstate__()
                self._process = start_filling(self, __name__, job, samples.store.descriptor, lock.fileno())
        except OSError as error:
            self.failure = f"no process could be started to fill it ({error})"
        finally:
            lock.release()


def start_filling(owner: object, module: str, job: Any, *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a process that calls `run` of a module with open descriptors and the PID of this process.

    It reads the pickled job from its standard input, and is terminated when `owner` is finalized. Raises
    OSError if no process can be started.
    """
    program = _PROGRAM.format(module=module)
    arguments = [json.dumps(sys.path), *map(str, (*descriptors, os.getpid()))]
    with tempfile.TemporaryFile() as file:
        pickle.dump(job, file)
        file.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
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


def run(descriptor: int, lock_file: int, parent: int) -> None:
    """Run in the process that fills a store, with inherited descriptors and the pickled samples on stdin."""
    from fastload.images.opencv import cv2

    set_worker_signals()  # on Ctrl-C it ends with the process that started it
    os.set_inheritable(lock_file, False)
    os.nice(_NICENESS)
    cv2.setNumThreads(1)
    kind, state = pickle.load(sys.stdin.buffer)
    opening: Opening = state["opening"]
    store = open_inherited(opening, descriptor)
    samples: CachedSamples = kind.__new__(kind)
    samples.__setstate__(state)
    began = time.monotonic()
    for _ in samples.fill():
        if os.getppid() != parent:
            return
        time.sleep(time.monotonic() - began)
        began = time.monotonic()
    store.note_filled()
