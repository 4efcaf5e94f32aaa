"""Reading another thread's stack."""

from __future__ import annotations

import itertools
import linecache
import os
import site
import sys
import sysconfig
from types import CodeType, FrameType

from fastload.doctor.activities import Frame

_DEEPEST = 60


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


def stack_of(thread: int) -> list[FrameType]:
    """The frames of a thread, the innermost last; empty where there is no such thread."""
    frame = sys._current_frames().get(thread)
    found: list[FrameType] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append(frame)
        frame = frame.f_back
    found.reverse()
    return found


def described(frame: FrameType) -> Frame:
    """What a frame is doing now."""
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
    text, is_exact = _text(code, instruction, line)
    return Frame(file, name, line, text, is_users, _called(text) if is_exact else "")


def _called(text: str) -> str:
    """An expression without what its brackets hold: `cv2.resize(`; "" where a string has half of a pair."""
    depth, kept = 0, []
    for character in text:
        depth -= character in ")]}"
        if depth == 0 and character not in "([{)]}":
            kept.append(character)
        depth += character in "([{"
    return "".join(kept) + "(" * text.endswith(")") if depth == 0 else ""


def _text(code: CodeType, instruction: int, line: int) -> tuple[str, bool]:
    """The source of the instruction that runs; False, and its line, where Python does not tell more."""
    whole = linecache.getline(code.co_filename, line).strip()
    tell = getattr(code, "co_positions", None)  # not before 3.11
    if tell is None or not whole:
        return whole, False
    positions = next(itertools.islice(tell(), instruction // 2, None), None)
    if positions is None:
        return whole, False
    first, last, begin, end = positions
    if first is None or first != last or begin is None or end is None:
        return whole, False
    # Columns count bytes.
    source = linecache.getline(code.co_filename, first).encode()
    exact = source[begin:end].decode(errors="replace").strip()
    return exact or whole, bool(exact)
