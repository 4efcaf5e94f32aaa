"""Output of all commands: every line to a terminal passes here, where what is not printable is escaped.

Names of files and classes, manifests and messages about them come from other people's data.
"""

from __future__ import annotations

import sys

from fastload.errors import printable


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
