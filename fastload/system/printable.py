"""Text from data as one line that a terminal shows and does not obey."""

from __future__ import annotations

import unicodedata

# Besides letters, digits and signs, a text may hold spaces of all kinds: names use U+3000 and U+00A0.
_SPACE = "Zs"


def printable(text: str) -> str:
    r"""Return a text with all that is neither visible nor a space escaped, as Python writes it.

    These are control characters, line ends included, which could move the cursor, set the terminal's title or
    begin a line that seems to be ours; characters that reverse or hide others; and bytes that are no UTF-8,
    which cannot be encoded.

    >>> printable("a\x1b[31m\nb \u202egpj.exe")
    'a\\x1b[31m\\nb \\u202egpj.exe'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or unicodedata.category(each) == _SPACE else repr(each)[1:-1]
        for each in text
    )
