"""Where styled text is printed: without any style where NO_COLOR is set, or nobody can see it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(stderr: bool = False) -> Console:
    """The console of a standard stream; NO_COLOR (https://no-color.org) takes bold and dim away, too."""
    from rich.console import Console

    return Console(stderr=stderr, color_system=None if os.environ.get("NO_COLOR") else "auto")


def can_draw() -> bool:
    """Whether standard error is a terminal on which a line can be drawn again."""
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def print_table(table: Table) -> None:
    """Prints a table, without the blanks that fill its last column."""
    target = console()
    with target.capture() as captured:
        target.print(table, markup=False)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
