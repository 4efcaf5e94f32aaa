"""Progress on standard error: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from fastload.cli.console import can_draw, console
from fastload.system.units import count as count_text
from fastload.system.units import size as size_text

__all__ = ["ProgressDisplay", "count_text", "duration", "rate_text", "reporter", "size_text"]

# In a log file: a line every ten seconds tells a person enough and fills no disk.
_LINE_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.1


class ProgressDisplay(AbstractContextManager["ProgressDisplay"]):
    """Shows how far something is.

    Args:
        label: What is being done.
        unit: What is counted, in the plural; `B` for bytes.
        is_quiet: Whether to show nothing.
    """

    def __init__(self, label: str, unit: str, is_quiet: bool = False) -> None:
        self._label = label
        self._unit = unit
        self._is_quiet = is_quiet
        self._began = time.monotonic()
        self._shown = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.stop()

    def update(self, done: float, total: float, note: str = "", resumed: float = 0) -> None:
        """Shows a new state.

        Args:
            done: How much is done, `resumed` included.
            total: How much there is.
            note: Shown behind the rate.
            resumed: How much was done before this run began; it does not count for the rate.
        """
        now = time.monotonic()
        is_drawn = can_draw()
        every = _REDRAW_EVERY_S if is_drawn else _LINE_EVERY_S
        is_due = now - self._shown >= every or (done >= total and self._shown)
        if self._is_quiet or not is_due:
            return
        elapsed = max(now - self._began, 1e-9)
        rate = (done - resumed) / elapsed
        remaining = (total - done) / rate if rate > 0 else float("inf")
        if not is_drawn:
            # The first line only after ten seconds: what is shorter needs none.
            if elapsed >= _LINE_EVERY_S:
                self._shown = now
                print(
                    f"{self._label}: {done / max(total, 1):.0%}, {rate_text(rate, self._unit)}{note}, "
                    f"{duration(remaining)} left",
                    file=sys.stderr,
                    flush=True,
                )
            return
        self._shown = now
        self._draw(done, total, f"{rate_text(rate, self._unit)}{note}  {duration(remaining)} left")

    def _draw(self, done: float, total: float, text: str) -> None:
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            # No thread of its own refreshes it: packing forks, and forks and threads do not mix.
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[text]}"),
                console=console(stderr=True),
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=total, text=text)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, text=text, refresh=True)


def reporter(display: ProgressDisplay) -> Callable[[int, int], None]:
    """A progress callback of (done, total) that feeds a display."""
    return lambda done, total: display.update(done, total)


def rate_text(rate: float, unit: str) -> str:
    """A rate as people read it: `1,234 records/s`, `56.7 MB/s`."""
    return f"{size_text(rate)}/s" if unit == "B" else f"{rate:,.0f} {unit}/s"


def duration(seconds: float) -> str:
    """A duration as people read it: `0.4 s`, `2:05 min`, `1:02:05 h`."""
    if seconds == float("inf"):
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"
