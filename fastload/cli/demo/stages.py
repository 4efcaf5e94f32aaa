"""The demo's progress on standard error: a bar on a terminal, a line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from fastload.cli.console import can_draw, console

_REDRAW_EVERY_S = 0.1
_NAME_WIDTH = 34  # that of the longest, so that the bar stays where it is


class Stages(AbstractContextManager["Stages"]):
    """Shows one stage after another, each with how far it is.

    Args:
        is_quiet: Whether to show nothing.
    """

    def __init__(self, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._name = ""
        self._shown = 0.0
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if not is_quiet and can_draw():
            # No thread of its own refreshes it: loaders fork, and forks and threads do not mix.
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                console=console(stderr=True),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("", total=1)
            self._bar.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, name: str, done: int, total: int) -> None:
        """Shows how far a stage is.

        Args:
            name: What is being done; what follows a colon is a part of the stage `name` begins with.
            done: How much is done.
            total: How much there is.
        """
        is_new = name != self._name
        stage_before, self._name = self._name.partition(":")[0], name
        if self._is_quiet:
            return
        if self._bar is None:
            stage = name.partition(":")[0]
            if stage != stage_before:
                print(f"{stage} …", file=sys.stderr, flush=True)
            return
        now = time.monotonic()
        if is_new or done >= total or now - self._shown >= _REDRAW_EVERY_S:
            self._shown = now
            name = name.ljust(_NAME_WIDTH)
            self._bar.update(self._task, description=name, completed=done, total=total, refresh=True)
