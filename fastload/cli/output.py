"""Output of all commands: every line to a terminal passes here, where what is not printable is escaped.

Names of files and classes, manifests and messages about them come from other people's data. Progress goes to
standard error: a bar on a terminal, an occasional line elsewhere.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import shutil
import sys
import time
from contextlib import AbstractContextManager

from fastload.errors import printable
from fastload.system.units import format_size

# In a log file, a line every ten seconds is enough, and does not fill the disk.
_LINE_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.1
_STAGE_WIDTH = 34  # of the longest stage's name, so that the bar stays in place
_BAR_WIDTH = 24


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Display of the progress of one task, counted in `unit`: a plural, or `B` for bytes."""

    def __init__(self, label: str, unit: str, is_quiet: bool = False) -> None:
        self._label, self._unit, self._is_quiet = label, unit, is_quiet
        self._start = self._shown = time.monotonic()
        self._is_drawn = False

    def __exit__(self, *error: object) -> None:
        if self._is_drawn:
            self._overwrite("")

    def update(self, done: float, total: float, detail: str = "", resumed: float = 0) -> None:
        """Show a new state, with `detail` after the rate.

        `resumed`, a part of `done`, was done before this run began and does not count for the rate.
        """
        now, is_drawn = time.monotonic(), can_draw()
        is_due = now - self._shown >= (_REDRAW_EVERY_S if is_drawn else _LINE_EVERY_S)
        is_last = done >= total and self._shown > self._start  # if nothing was shown, nothing has to end
        if self._is_quiet or not (is_due or is_last):
            return
        self._shown = now
        rate = (done - resumed) / max(now - self._start, 1e-9)
        text, remaining = f"{rate_text(rate, self._unit)}{detail}", "?"
        if rate > 0:
            remaining = duration_text((total - done) / rate)
        if is_drawn:
            self._draw(self._label, done, total, f"{text}  {remaining} left")
        else:
            note(f"{self._label}: {done / max(total, 1):.0%}, {text}, {remaining} left")

    def stage(self, name: str, done: int, total: int) -> None:
        """Show the progress of one of several stages; a detail may follow a colon in its name."""
        if self._is_quiet:
            return
        now, stage = time.monotonic(), name.partition(":")[0]
        if not can_draw():
            if stage != self._label:
                note(f"{stage} …")
            self._label = stage
        elif name != self._label or done >= total or now - self._shown >= _REDRAW_EVERY_S:
            self._label, self._shown = name, now
            self._draw(name.ljust(_STAGE_WIDTH), done, total, "")

    def _draw(self, label: str, done: float, total: float, text: str) -> None:
        """Draw one line, and return to its start, so that the next output overwrites it."""
        share = done / max(total, 1)
        bar = ("=" * round(_BAR_WIDTH * share)).ljust(_BAR_WIDTH)
        self._overwrite(f"{label} [{bar}] {share:4.0%}  {text}")
        self._is_drawn = True

    def _overwrite(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1  # in the last column, some terminals begin a new line
        print(printable(text)[:width].ljust(width), end="\r", file=sys.stderr, flush=True)


def can_draw() -> bool:
    """Return whether standard error is a terminal on which a line can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def rate_text(rate: float, unit: str) -> str:
    """Return a rate for reading: `1,234 records/s`, `56.7 MB/s`."""
    return f"{format_size(rate)}/s" if unit == "B" else f"{rate:,.0f} {unit}/s"


def duration_text(seconds: float) -> str:
    """Return a duration for reading: `0.4 s`, or hours, minutes and seconds, `1:02:05`."""
    return f"{seconds:.1f} s" if seconds < 60 else str(datetime.timedelta(seconds=round(seconds)))


def show(*lines: object) -> None:
    """Print lines on standard output; a line end within one of them is escaped."""
    for line in lines:
        print(printable(str(line)))


def note(*lines: object) -> None:
    """Print lines on standard error, at once; a line end within one of them is escaped."""
    for line in lines:
        print(printable(str(line)), file=sys.stderr, flush=True)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text that was laid out before, for `show` or `note`."""
    return text.removesuffix("\n").split("\n")


def show_json(content: object) -> None:
    """Print a result as JSON: with null for numbers that JSON does not have, and other objects as text."""
    show(*lines_of(json.dumps(_finite(content), indent=1, allow_nan=False, default=str)))


def _finite(content: object) -> object:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
