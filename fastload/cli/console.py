"""Where styled text is printed: without any style where NO_COLOR is set, or nobody can see it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(stderr: bool = False) -> Console:
    """The console of a standard stream; NO_COLOR (https://no-color.org) takes bold and dim away, too."""
    from rich.console import Console

    return Console(stderr=stderr, color_system=None if os.environ.get("NO_COLOR") else "auto")


def print_table(table: Table) -> None:
    """Prints a table; without the blanks that fill its last column, unless on a terminal."""
    target = console()
    if target.is_terminal:
        target.print(table, markup=False)
        return
    with target.capture() as captured:
        target.print(table, markup=False)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
