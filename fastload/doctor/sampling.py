"""A thread that looks, two hundred times a second, what another thread is doing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence

from fastload.doctor.activities import Frame
from fastload.doctor.loads import index_in
from fastload.doctor.stacks import described, stack_of

INTERVAL_S = 0.005
"""A thousand looks in five seconds tell a share of 1 % to within a third of it, one of 30 % to within 5 % of
it; one takes 150 to 250 µs, 3 to 5 % of a core."""

SWITCH_S = 0.0001
"""How soon Python hands its lock to the thread that looks, in place of 5 ms: by then the thread that is
looked at would have let go of it by itself, at a call of some library, and would be seen nowhere else. Two
threads that compute beside each other take no longer for it (measured down to 0.05 ms)."""

Notice = Callable[[Sequence[Frame], float, int | None], None]
"""Told the stack, its innermost frame last, the seconds since the look before, and the index of the sample
that is being made, where that shows."""


class Sampler:
    """Looks at a thread until it is stopped.

    Args:
        thread: The thread's identifier.
        notice: Called for each look.
        each_s: From one look to the next, in seconds.

    Attributes:
        cpu_s: The CPU time that the looks have taken.
    """

    def __init__(self, thread: int, notice: Notice, each_s: float = INTERVAL_S) -> None:
        self._thread = thread
        self._notice = notice
        self._each_s = each_s
        self.cpu_s = 0.0
        self._is_over = False
        self._switch_s = sys.getswitchinterval()
        self._looking = threading.Thread(target=self._look, name="fastload-doctor", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        sys.setswitchinterval(SWITCH_S)
        self._looking.start()

    def stop(self) -> None:
        """Ends it, and waits until the last look is over."""
        self._is_over = True
        if self._looking.is_alive():
            self._looking.join()
        sys.setswitchinterval(self._switch_s)

    def _look(self) -> None:
        before = time.perf_counter()
        while not self._is_over:
            # Waiting for an event would take as long again as the look.
            time.sleep(self._each_s)
            frames = stack_of(self._thread)
            now = time.perf_counter()
            stack, index = [described(frame) for frame in frames], index_in(frames)
            # The frames belong to the thread that is looked at: none may live on here.
            del frames
            self._notice(stack, now - before, index)
            self.cpu_s = time.thread_time()
            before = now
