"""Styled output, plain if NO_COLOR is set or the stream is no terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(stderr: bool = False) -> Console:
    """Return the console of a standard stream; NO_COLOR (https://no-color.org) also removes bold and dim."""
    from rich.console import Console

    return Console(stderr=stderr, color_system=None if os.environ.get("NO_COLOR") else "auto")


def can_draw() -> bool:
    """Tell if standard error is a terminal on which a line can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def print_table(table: Table) -> None:
    """Print a table without the blanks that fill its last column."""
    target = console()
    with target.capture() as captured:
        target.print(table, markup=False)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
