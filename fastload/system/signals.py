"""The signals that end a process: Ctrl-C, SIGTERM and SIGHUP, while something must not be left half-done."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP leave the block as Ctrl-C does: it ends its processes and removes its files.

    The process dies of the signal right behind the block, as it would have. A signal that the program handles
    itself, or ignores, is left alone, and so are all in a thread, which cannot handle any.
    """
    caught: list[int] = []

    def unwind(number: int, frame: FrameType | None) -> None:
        if not caught:  # the next ones change nothing: what the first began is bounded
            caught.append(number)
            raise SystemExit(128 + number)

    numbers = [number for number in _handled() if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if caught:
            kill_daemons()
            signal.raise_signal(caught[0])


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Lets the signals that Python handles wait for the end of the block, which must be a short one."""
    caught: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Any] = {}
    for number in (signal.SIGINT, *_handled()):
        handler = signal.getsignal(number)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            handlers[number] = handler
            signal.signal(number, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if caught:
            handlers[caught[0][0]](*caught[0])


def kill_daemons() -> None:
    """Kills the daemonic processes that are left, such as DataLoader workers: a stopped one would stay."""
    if "multiprocessing" in sys.modules:
        for child in sys.modules["multiprocessing"].active_children():
            if child.daemon:
                child.kill()


def of_a_worker() -> None:
    """Sets what a worker does: Ctrl-C reaches all, and the main process decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _ENDING:  # a forked worker would run the handlers of the main process
        signal.signal(number, signal.SIG_DFL)


def of_a_pools_worker() -> None:
    """Sets what a worker of an executor does, which by itself outlives a main process that is killed."""
    of_a_worker()
    if sys.platform == "linux":  # ends also one that is stopped, if it was forked
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with_main, daemon=True).start()


def _end_with_main() -> None:
    main = sys.modules["multiprocessing"].parent_process()
    if main is not None:
        main.join()
        os._exit(1)


@contextlib.contextmanager
def killing(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Kills an executor's workers where the block is left early: it would wait for one that is stopped."""
    try:
        yield
    except BaseException:
        with waiting():
            # Public from Python 3.14 on, as kill_workers().
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.kill()
        raise


def _handled() -> list[int]:
    """SIGTERM and SIGHUP where this thread can handle them."""
    return _ENDING if threading.current_thread() is threading.main_thread() else []
