"""Times and stack samples of the threads that make batches and train, taken two hundred times a second."""

from __future__ import annotations

import contextlib
import gc
import itertools
import linecache
import operator
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from fastload.doctor.findings import NO_WORK, Category
from fastload.doctor.watching.categories import Frame, Stack, loading_category, users_line
from fastload.doctor.watching.torch_calls import FETCH_FILE, FETCHERS, worker_loop
from fastload.loader.clock import LoadTimes, total_of
from fastload.system.cpus import SchedulingDelay
from fastload.system.patching import patched
from fastload.system.script import LIBRARY_FOLDERS

INTERVAL_S = 0.005
"""A thousand samples in five seconds give a share of 1 % to within a third of it, and one of 30 % to within
5 % of it; a sample takes 150 to 250 µs, so sampling takes 3 to 5 % of a core."""

SWITCH_S = 0.0001
"""Python's switch interval while sampling, instead of 5 ms: within 5 ms the sampled thread releases the lock
by itself in some library call, and would be sampled only there. Two threads that compute at the same time are
not slowed down (measured down to 0.05 ms)."""

_DEEPEST = 60

Notice = Callable[[Stack, float], None]
"""Called with a stack and the seconds since the previous sample in which the thread ran or was blocked."""


class StackSampler:
    """Samples the stack of the thread that creates it, within a `with` block.

    Time in which the thread waited for a free CPU is left out: it says nothing about the code. `delayed_s`
    returns that time, and `cpu_s` is the CPU time that sampling took.
    """

    def __init__(self, notice: Notice, delayed_s: Callable[[], float] | None = None) -> None:
        self._thread = threading.get_ident()
        self.delayed_s = delayed_s or SchedulingDelay().seconds
        self._notice = notice
        self.cpu_s = 0.0
        self._is_over = False
        self._switch_s = sys.getswitchinterval()
        self._sampling = threading.Thread(target=self._run, name="fastload-doctor", daemon=True)

    def __enter__(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._sampling.start()

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._sampling.join()
        sys.setswitchinterval(self._switch_s)

    def _run(self) -> None:
        before = self._running_s()
        while not self._is_over:
            # Waiting for an event would take as long as the sample itself.
            time.sleep(INTERVAL_S)
            now, stack = self._running_s(), stack_of(self._thread)
            self._notice(stack, max(0.0, now - before))
            self.cpu_s = time.thread_time()
            before = now

    def _running_s(self) -> float:
        return time.perf_counter() - self.delayed_s()


def stack_of(thread: int) -> Stack:
    """Return the stack of a thread; empty if there is no such thread."""
    # In one call of compiled code, because Python 3.11 crashes if the thread runs during the walk: its frames
    # may vanish. Garbage collection during the call could run Python code, and so let the thread run.
    top: Any = map(operator.itemgetter(thread), itertools.starmap(sys._current_frames, [()]))
    frames = itertools.accumulate(itertools.chain(top, itertools.repeat("f_back", _DEEPEST - 1)), getattr)
    found: list[tuple[CodeType, int]] = []
    if gc.isenabled():
        _paused.append(True)
        gc.disable()
    with contextlib.suppress(KeyError, AttributeError):  # no such thread; above the first
        found.extend(map(operator.attrgetter("f_code", "f_lasti"), frames))
    _collect_again()
    return tuple(frame_at(*each, is_innermost=not index) for index, each in reversed(list(enumerate(found))))


_paused: list[bool] = []  # not empty while collection is off


def _collect_again() -> None:
    if _paused:
        gc.enable()
        _paused.clear()


# A worker may be forked while collection is off, and has no sampling thread that turns it on again.
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_collect_again)


# By identity, because hashing a code object hashes all its constants; stored, so that no other gets its id.
_frames: dict[tuple[int, int, bool], tuple[CodeType, Frame]] = {}


def frame_at(code: CodeType, instruction: int, is_innermost: bool = True) -> Frame:
    """Return the names and the source of an instruction, given as in a frame's `f_code` and `f_lasti`.

    The source is read where it matters: in the user's code, in torch's fetcher, and in the innermost frame.
    Reading all of a library's files would take longer than a short training.
    """
    known = _frames.get((id(code), instruction, is_innermost))
    if known is not None:
        return known[1]
    file = code.co_filename
    line = next((line for begin, end, line in code.co_lines() if begin <= instruction < end), 0) or 0
    name = str(getattr(code, "co_qualname", code.co_name)).replace("<locals>.", "")
    is_users = not file.startswith((*LIBRARY_FOLDERS, "<"))
    is_read = is_users or is_innermost or file == FETCH_FILE
    text = _source_line(file, line).strip() if is_read else ""
    exact = _expression(code, instruction) if text else ""
    frame = Frame(file, name, line, exact or text, is_users, _without_arguments(exact) or exact or text)
    _frames[id(code), instruction, is_innermost] = code, frame
    return frame


def _source_line(file: str, line: int) -> str:
    # Another thread may clear the cache meanwhile, as it does to format a traceback.
    with contextlib.suppress(LookupError):
        return linecache.getline(file, line)
    return ""


def _expression(code: CodeType, instruction: int) -> str:
    """Return the source of an instruction on one line; "" if unknown, as before Python 3.11."""
    positions: Any = getattr(code, "co_positions", tuple)()
    first, last, begin, end = next(itertools.islice(positions, max(0, instruction) // 2, None), (None,) * 4)
    if first is None or first != last or begin is None or end is None:
        return ""
    # Columns count bytes.
    source = _source_line(code.co_filename, first).encode(errors="replace")
    return source[begin:end].decode(errors="replace").strip()


def _without_arguments(text: str) -> str:
    """Return an expression without the contents of brackets; "" if a string contains half of a pair."""
    depth, outside = 0, []
    for character in text:
        depth -= character in ")]}"
        if depth == 0 and character not in "([{)]}":
            outside.append(character)
        depth += character in "([{"
    return "".join(outside) + "(" * text.endswith(")") if depth == 0 else ""


_SAVE_EACH_S = 0.25


@dataclass
class WorkerLog:
    """Times and stack samples (seconds by category and place) of one process that makes batches."""

    times: LoadTimes = NO_WORK
    seen: dict[tuple[Category, str], float] = field(default_factory=dict)

    def notice(self, stack: Stack, seconds: float) -> None:
        """Record a stack sample if the thread is making a batch."""
        begin = next((index for index, frame in enumerate(stack) if frame.file == FETCH_FILE), None)
        if begin is not None:
            key = loading_category(stack[begin:]), users_line(stack[begin:])
            self.seen[key] = self.seen.get(key, 0.0) + seconds

    def save(self, path: Path) -> None:
        """Write the log, by pickle, to a file that another process may read at any time."""
        part = path.with_suffix(".part")
        # Of a copy, because the sampling thread may add to it.
        part.write_bytes(pickle.dumps(WorkerLog(self.times, dict(self.seen))))
        os.replace(part, path)


@contextlib.contextmanager
def noting_fetches(current: Callable[[], WorkerLog | None], delayed_s: Callable[[], float]) -> Iterator[None]:
    """Record the times of torch's fetchers in this thread in the log that `current()` returns, if any."""

    def noted(original: Callable[..., object]) -> Callable[..., object]:
        def fetch_noted(self: object, possibly_batched_index: object) -> object:
            log = current()
            if log is None:
                return original(self, possibly_batched_index)
            before = time.perf_counter(), time.thread_time(), delayed_s()
            batch = original(self, possibly_batched_index)
            now = time.perf_counter(), time.thread_time(), delayed_s()
            busy_s, cpu_s, waited_s = (after - earlier for after, earlier in zip(now, before, strict=True))
            made = LoadTimes(1, count_in(possibly_batched_index), busy_s, cpu_s, waited_s, 0.0)
            log.times = total_of([log.times, made])
            return batch

        return fetch_noted

    with patched(*((kind, "fetch", noted(kind.fetch)) for kind in FETCHERS)):
        yield


def count_in(asked: object) -> int:
    """Return the number of samples that a fetcher was asked for."""
    try:
        return len(getattr(asked, "indices", asked))  # type: ignore[arg-type]
    except TypeError:
        return 1


def watched_loop(folder: str, loader: str, *arguments: object) -> None:
    """Run torch's worker loop and write a log of it into a folder; spawned workers import it by name.

    The folder is an argument rather than an environment variable, because all workers of a forkserver have
    the environment that the server started in.
    """
    path = Path(folder) / f"{loader}-{os.getpid()}.log"
    log = WorkerLog()
    saved = time.perf_counter()

    def save() -> None:
        # If the doctor has ended, its folder is gone too.
        with contextlib.suppress(OSError):
            log.save(path)

    def notice(stack: Stack, seconds: float) -> None:
        nonlocal saved
        log.notice(stack, seconds)
        if time.perf_counter() - saved >= _SAVE_EACH_S:
            save()
            saved = time.perf_counter()

    sampler = StackSampler(notice)
    try:
        with noting_fetches(lambda: log, sampler.delayed_s), sampler:
            worker_loop(*arguments)
    finally:
        save()
