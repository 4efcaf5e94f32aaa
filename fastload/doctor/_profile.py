"""Stack samples of a thread, taken by another thread two hundred times a second."""

from __future__ import annotations

import itertools
import linecache
import os
import site
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType, FrameType

from fastload.doctor._categories import Frame

INTERVAL_S = 0.005
"""A thousand samples in five seconds tell a share of 1 % to within a third of it, one of 30 % to within 5 %
of it; a sample takes 150 to 250 µs, 3 to 5 % of a core."""

SWITCH_S = 0.0001
"""Python's switch interval while sampling, in place of 5 ms: by then the sampled thread would have released
the lock by itself, at a call of some library, and would never be seen elsewhere. Two threads that compute
beside each other take no longer for it (measured down to 0.05 ms)."""

_DEEPEST = 60

Notice = Callable[[Sequence[Frame], float], None]
"""Called with the stack (innermost frame last) and the seconds since the sample before."""


class Sampler:
    """Samples a thread's stack from `start` to `stop`; `cpu_s` is the CPU time that this took."""

    def __init__(self, thread: int, notice: Notice) -> None:
        self._thread = thread
        self._notice = notice
        self.cpu_s = 0.0
        self._is_over = False
        self._switch_s = sys.getswitchinterval()
        self._sampling = threading.Thread(target=self._run, name="fastload-doctor", daemon=True)

    def start(self) -> None:
        """Start the sampling thread."""
        sys.setswitchinterval(SWITCH_S)
        self._sampling.start()

    def stop(self) -> None:
        """Stop it, and wait for the last sample."""
        self._is_over = True
        if self._sampling.is_alive():
            self._sampling.join()
        sys.setswitchinterval(self._switch_s)

    def _run(self) -> None:
        before = time.perf_counter()
        while not self._is_over:
            # Waiting for an event would take as long again as the sample.
            time.sleep(INTERVAL_S)
            now, stack = time.perf_counter(), stack_of(self._thread)
            self._notice(stack, now - before)
            self.cpu_s = time.thread_time()
            before = now


def stack_of(thread: int) -> list[Frame]:
    """Return the stack of a thread, the innermost frame last; empty where there is no such thread."""
    frame = sys._current_frames().get(thread)
    found: list[Frame] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append(described(frame))
        frame = frame.f_back
    found.reverse()
    return found


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(site.getusersitepackages())
    folders.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return tuple(os.path.join(folder, "") for folder in folders)


_LIBRARIES = _library_folders()
# By identity: a code object's hash is that of all its constants. It is kept, so that no other gets its id.
_described: dict[tuple[int, int], tuple[CodeType, Frame]] = {}


def described(frame: FrameType) -> Frame:
    """Return the names and the source of what a frame runs now."""
    code, instruction = frame.f_code, frame.f_lasti
    known = _described.get((id(code), instruction))
    if known is None:
        known = code, _describe(code, instruction, frame.f_lineno or 0)
        _described[id(code), instruction] = known
    return known[1]


def _describe(code: CodeType, instruction: int, line: int) -> Frame:
    file = code.co_filename
    name = str(getattr(code, "co_qualname", code.co_name)).replace("<locals>.", "")
    is_users = not file.startswith(_LIBRARIES) and not file.startswith("<")
    text, is_exact = _source(code, instruction, line)
    return Frame(file, name, line, text, is_users, _without_arguments(text) if is_exact else "")


def _without_arguments(text: str) -> str:
    """Return an expression without what its brackets hold; "" where a string has half of a pair."""
    depth, outside = 0, []
    for character in text:
        depth -= character in ")]}"
        if depth == 0 and character not in "([{)]}":
            outside.append(character)
        depth += character in "([{"
    return "".join(outside) + "(" * text.endswith(")") if depth == 0 else ""


def _source(code: CodeType, instruction: int, line: int) -> tuple[str, bool]:
    """Return the source of an instruction and True; its line and False where Python does not tell more."""
    whole = linecache.getline(code.co_filename, line).strip()
    positions = getattr(code, "co_positions", None)  # not before 3.11
    if positions is None or not whole:
        return whole, False
    first, last, begin, end = next(itertools.islice(positions(), instruction // 2, None), (None,) * 4)
    if first is None or first != last or begin is None or end is None:
        return whole, False
    # Columns count bytes.
    source = linecache.getline(code.co_filename, first).encode()
    exact = source[begin:end].decode(errors="replace").strip()
    return exact or whole, bool(exact)
