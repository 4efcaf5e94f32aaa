"""Handling of Ctrl-C, SIGTERM and SIGHUP in workers, and in work that must not be left half-done."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from types import FrameType

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_TERMINATING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Terminated(SystemExit):
    """Unwinds a block after SIGTERM or SIGHUP."""


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Make SIGTERM and SIGHUP unwind the block as Ctrl-C does, so that it ends processes and removes files.

    The process then dies of the signal. Signals that the program handles itself, or ignores, are left alone;
    outside the main thread, which alone can handle signals, nothing changes.
    """
    caught: list[int] = []
    process = os.getpid()

    def unwind(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a forked child, which has inherited this handler, dies at once
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if not caught:  # after the first signal, unwinding is under way
            caught.append(number)
            raise Terminated(128 + number)

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
def deferred_signals() -> Iterator[None]:
    """Defer the signals that Python handles until the end of the block, which must be short."""
    caught: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
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
    """Kill the remaining daemonic processes, such as DataLoader workers: a stopped one would survive."""
    if "multiprocessing" in sys.modules:
        if hasattr(signal, "SIGCHLD"):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would raise an error for each
        for child in sys.modules["multiprocessing"].active_children():
            if child.daemon:
                child.kill()


def set_worker_signals() -> None:
    """Set the signals of a worker: it ignores Ctrl-C, which the main process handles for all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _TERMINATING:  # a forked worker has inherited the main process's handlers
        signal.signal(number, signal.SIG_DFL)


def set_pool_worker_signals() -> None:
    """Set the signals of an executor's worker, and end it when the main process dies."""
    set_worker_signals()
    if sys.platform == "linux":  # also ends a stopped worker, if it was forked
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_with_main, daemon=True).start()


def _exit_with_main() -> None:
    main = sys.modules["multiprocessing"].parent_process()
    if main is not None:
        main.join()
        os._exit(1)


@contextlib.contextmanager
def killing_workers(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Kill an executor's workers if the block raises: its shutdown would wait for a stopped one."""
    try:
        yield
    except BaseException:
        with deferred_signals():
            # Public from Python 3.14 on, as kill_workers().
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.kill()
        raise


def _handled() -> list[int]:
    """Return SIGTERM and SIGHUP; none of them outside the main thread, which alone can handle signals."""
    return _TERMINATING if threading.current_thread() is threading.main_thread() else []
