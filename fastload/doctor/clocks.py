"""Clocks of one thread: its CPU time, and how long it was ready to run and no CPU was free."""

from __future__ import annotations

import contextlib
import os
import threading
import time


class ThreadClock:
    """The clocks of the thread that makes it.

    /proc's `schedstat` counts the time in run queues, in nanoseconds (the kernel's sched-stats.rst). Where
    there is none, that time is 0.
    """

    def __init__(self) -> None:
        self._file = -1
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def delayed_s(self) -> float:
        """How long the thread waited for a CPU so far, in seconds."""
        if self._file < 0:
            return 0.0
        try:
            fields = os.pread(self._file, 64, 0).split()
            return int(fields[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def cpu_s(self) -> float:
        """The calling thread's CPU time, in seconds."""
        return time.thread_time()

    def close(self) -> None:
        """Lets go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
