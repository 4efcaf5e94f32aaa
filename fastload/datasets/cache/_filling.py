"""Background filling of a store, by one process per store.

A thread could be in the middle of anything when the loader forks its workers, and would compete with the
training for the GIL. So a fresh interpreter is started about a second after the first batch is asked for, at
low priority. It reads what is missing in the order of the dataset, and rests as long as it works, because the
reads of the workers come first. Workers store what they read themselves; together they read everything once.

The process holds the store's filler lock. If it dies, another user of the store starts a new one; if the
process that started it ends, in whatever way, it ends within a step.
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
from typing import TYPE_CHECKING

from fastload.datasets.cache.opening import Opening, StoreFolder, lock_exclusively, open_inherited
from fastload.system.signals import set_worker_signals

if TYPE_CHECKING:
    from fastload.datasets.cache._samples import CachedSamples

_NICENESS = 10

# The time between two checks that a process fills the store.
_PATIENCE_S = 2.0

# Starting the process takes 0.3 s of a core: short uses of a dataset do without.
_FIRST_S = 1.0

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastload.datasets.cache._filling import run; run(*map(int, sys.argv[2:]))"
)


class Filler:
    """The process that fills a store; `trouble` is the reason why it has ended early, or ""."""

    def __init__(self) -> None:
        self._next_check_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.trouble = ""

    def ensure_running(self, samples: CachedSamples) -> None:
        """Start the process unless there is one, or nothing to do; called for every batch."""
        now = time.monotonic()
        if self._next_check_s is None:
            self._next_check_s = now + _FIRST_S
        if now < self._next_check_s:
            return
        self._next_check_s = now + _PATIENCE_S
        # In a forked child, the parent's process counts as ended; its lock keeps a second one away.
        if self._process is not None and self._process.poll() is not None:
            if self._process.returncode > 0:
                self.trouble = f"the process that fills it ended with code {self._process.returncode}"
            self._process = None
        store = samples.store
        if self._process is not None or self.trouble or store.is_filled:
            return
        if store.missing().size:
            self._start(samples)
        else:
            store.note_filled()

    def _start(self, samples: CachedSamples) -> None:
        opening = samples.opening
        try:
            lock_file = StoreFolder(opening.folder).open(opening.key, "filler")
        except OSError:
            return  # the folder is gone: workers still store what they read
        try:
            if not lock_exclusively(lock_file):
                return
            with tempfile.TemporaryFile() as job:
                # As a state, because unpickling the samples would open the store as another user.
                pickle.dump((type(samples), samples.__getstate__()), job)
                job.seek(0)
                numbers = (samples.store.descriptor, lock_file)
                arguments = [json.dumps(sys.path), *map(str, (*numbers, os.getpid()))]
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, *arguments],
                    stdin=job,
                    stdout=subprocess.DEVNULL,
                    pass_fds=numbers,
                )
        except OSError as error:
            self.trouble = f"no process could be started to fill it ({error})"
            return
        finally:
            os.close(lock_file)
        weakref.finalize(self, _end, self._process, os.getpid())


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        process.returncode = 0  # a forked child's copy
        return
    with contextlib.suppress(OSError):
        process.kill()
    process.wait()


def run(descriptor: int, lock_file: int, parent: int) -> None:
    """Fill a store as the process does, given its descriptor and that of its lock; stdin has the samples."""
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
