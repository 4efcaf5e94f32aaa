"""Exceptions that fastload raises on purpose.

Each is a FastloadError and also the builtin exception that a caller would expect. Each takes exactly one
string and survives pickling: torch rebuilds a worker's exception in the training process from that string.
Messages hold names from other people's data, so what a terminal would obey is escaped in them.
"""

import unicodedata
from pickle import PicklingError

HOW_TO_INSTALL = "pip install . in a checkout of fastload"
"""For error messages. On PyPI, the name `fastload` belongs to another project."""


# Besides letters, digits and signs, a text may hold spaces of all kinds: names use U+3000 and U+00A0.
_SPACE = "Zs"
_FROM_WORKER = "Caught "


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


class FastloadError(Exception):
    """Base class of all exceptions that fastload raises."""

    def __init__(self, message: str) -> None:
        # torch puts the traceback of a worker before its message, which was escaped there.
        super().__init__(message if message.startswith(_FROM_WORKER) else printable(message))

    def __str__(self) -> str:
        # OSError and KeyError would format the message in their own ways.
        return str(self.args[0])


class OptionError(FastloadError, ValueError):
    """A parameter or command-line option has an invalid value."""


class SourceError(FastloadError, ValueError):
    """The data to pack or load cannot be listed, recognised or read."""


class PackError(FastloadError, OSError):
    """Packing or unpacking stopped early: the disk is full, a worker died, or the destination is locked."""


class DestinationError(FastloadError, FileExistsError):
    """The destination exists already, holds something else, cannot be written to, or lacks space."""


class FormatError(FastloadError, ValueError):
    """A folder holds no packed dataset, or one that this release cannot read."""


class DamageError(FastloadError, OSError):
    """Stored bytes fail their checksum, are missing, or belong to another dataset."""


class AccessError(FastloadError, OSError):
    """This process cannot open a file: it lacks the permission, or has too many files open."""


class RemoteError(FastloadError, OSError):
    """A file at a URL cannot be read or written: the server does not answer, or answers with an error."""


class RemoteMissingError(RemoteError, FileNotFoundError):
    """There is no file at a URL."""


class DecodeError(FastloadError, ValueError):
    """Bytes cannot be decoded as an image."""


class RecordIndexError(FastloadError, IndexError):
    """An index is outside the dataset."""


# For an object that cannot be pickled, Python raises any of the other three.
class UnpicklableError(FastloadError, PicklingError, TypeError, AttributeError):
    """An object that workers need cannot be pickled."""


class ToolMissingError(FastloadError, OSError):
    """An external program, such as jpegtran, is not installed."""


class LibraryMissingError(FastloadError, ImportError):
    """A Python library is not installed, or cannot be imported."""
