"""Filling a store in the background, by a process of its own: one for each store, whoever started it.

A thread could be in the middle of anything when the loader forks its workers, and would take its turns with
the training's own Python. So it is a fresh interpreter, started only when the first batch is asked for, at
low priority. It reads what is missing in the order in which it lies on the disk, and rests for as long as
it has worked, because what the workers want now comes first. What they read is kept by themselves; together
they read everything once.

It holds the store's filler lock. If it dies, whoever notices starts another; if the process that started it
ends in whatever way, it ends within a step.
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
from collections.abc import Iterator
from typing import Any, Protocol

from fastload.datasets.cache.folder import StoreFolder, is_locked_alone
from fastload.datasets.cache.opening import Opening, adopt
from fastload.datasets.cache.store import Store

_NICENESS = 10

# How long whoever fills is left alone before it is looked whether it still lives.
_PATIENCE_S = 2.0

# A start takes 0.3 s of a core: what is over sooner does without.
_FIRST_S = 1.0

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastload.datasets.cache.filling import run; run(*map(int, sys.argv[2:]))"
)


class Fillable(Protocol):
    """What can be filled step by step. It is pickled to the process that does it."""

    @property
    def opening(self) -> Opening:
        """Of the store."""

    @property
    def store(self) -> Store:
        """What is filled."""

    def steps(self) -> Iterator[None]:
        """Does what there is to do, some milliseconds of it at a time."""


class Filler:
    """Sees to it that a store is being filled.

    Args:
        subject: What is to be filled.

    Attributes:
        trouble: Why it is no longer seen to; empty while all is well.
    """

    def __init__(self, subject: Fillable) -> None:
        self._subject = subject
        self._next_look_s: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._end: Any = None
        self.trouble = ""

    def see_to_it(self) -> None:
        """Starts the process that fills, unless there is one or nothing to do; to be called often."""
        now = time.monotonic()
        if self._next_look_s is None:
            self._next_look_s = now + _FIRST_S
        if now < self._next_look_s:
            return
        self._next_look_s = now + _PATIENCE_S
        if self._owner != os.getpid():
            # Forked: the process is the parent's, which Popen would wait for.
            self._owner, self._end = os.getpid(), None
            if self._process is not None:
                self._process.returncode = 0
                self._process = None
        if self._process is not None and self._process.poll() is not None:
            if self._process.returncode > 0:
                self.trouble = f"the process that fills it ended with code {self._process.returncode}"
            self._process = None
            # Whatever it left out, it could not read.
            self._next_look_s = float("inf") if self.trouble or not self._is_wanted() else now
        if self._process is None and self._is_wanted():
            self._start()

    def stop(self) -> None:
        """Ends the process, if this one has started it."""
        if self._end is not None:
            self._end()

    def _is_wanted(self) -> bool:
        store = self._subject.store
        return not self.trouble and store.is_open and not store.is_filled

    def _start(self) -> None:
        opening, store = self._subject.opening, self._subject.store
        if store.count and store.ready == store.count:
            store.note_filled()
            return
        if not sys.executable:
            self.trouble = "this Python has no program that could be started to fill it"
            return
        try:
            lock = StoreFolder(opening.folder).open(opening.key, "filler")
        except OSError:
            return  # the folder is gone: workers still keep what they read
        try:
            if not is_locked_alone(lock):
                return
            with tempfile.TemporaryFile() as job:
                pickle.dump(self._subject, job)
                job.flush()
                job.seek(0)
                numbers = (job.fileno(), store.descriptor, lock)
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        _PROGRAM,
                        json.dumps(sys.path),
                        *map(str, (*numbers, os.getpid())),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=numbers,
                )
        except OSError as error:
            self.trouble = f"no process could be started to fill it ({error})"
            return
        finally:
            os.close(lock)
        self._end = weakref.finalize(self, _end, self._process, os.getpid())


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        process.returncode = 0  # a forked child's copy
        return
    with contextlib.suppress(OSError):
        process.kill()
    process.wait()


def run(job: int, descriptor: int, lock: int, parent: int) -> None:
    """What the process does: fills what is pickled in a file.

    Args:
        job: The descriptor of that file.
        descriptor: The store's.
        lock: That of the filler lock, which ends with this process.
        parent: The process that started it.
    """
    os.set_inheritable(lock, False)
    os.nice(_NICENESS)
    _use_one_thread()
    with os.fdopen(job, "rb") as file, adopt(descriptor):
        subject: Fillable = pickle.load(file)
    steps = subject.steps()
    while os.getppid() == parent:
        began = time.monotonic()
        if next(steps, subject) is subject:
            subject.store.note_filled()
            return
        time.sleep(time.monotonic() - began)


def _use_one_thread() -> None:
    from fastload.images.opencv import cv2

    cv2.setNumThreads(1)
