"""Every error that fastload raises on purpose.

    FastloadError
    ├── OptionError        (ValueError)         a parameter or option that cannot be obeyed
    ├── SourceError        (ValueError)         what is to be packed cannot be listed or read
    ├── PackError          (OSError)            packing stopped: full disk, lost worker, locked destination
    ├── DestinationError   (FileExistsError)    the place to write to is taken or unsafe to replace
    ├── FormatError        (ValueError)         not a packed dataset, or one this release cannot read
    ├── DamageError        (OSError)            stored bytes differ from what their checksum says
    ├── AccessError        (OSError)            a stored file that may not, or cannot now, be opened
    ├── DecodeError        (ValueError)         bytes that are no readable image
    ├── RecordIndexError   (IndexError)         an index outside the dataset
    ├── UnpicklableError   (PicklingError, …)   what workers need cannot be sent to them
    ├── ToolMissingError   (OSError)            an external program is not installed
    └── LibraryMissingError (ImportError)       a Python library cannot be imported

    SlowTransformWarning   (UserWarning)        what foreign transforms in a Compose cost

Each also is the builtin exception a caller would expect, takes exactly one string, and survives a
pickle unchanged: torch rebuilds a worker's exception in the training process from that string.
"""

from pickle import PicklingError

HOW_TO_INSTALL = "pip install . in a checkout of fastload"
"""For messages. No package index has it yet: `pip install fastload` installs another project's package."""


class FastloadError(Exception):
    """The base of all errors raised by fastload."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        # OSError and KeyError print themselves in their own ways; one sentence is wanted here.
        return str(self.args[0])


class OptionError(FastloadError, ValueError):
    """A parameter or a command-line option has a value that cannot be obeyed."""


class SourceError(FastloadError, ValueError):
    """A source cannot be listed, recognised or read."""


class PackError(FastloadError, OSError):
    """Packing or unpacking stopped before its end."""


class DestinationError(FastloadError, FileExistsError):
    """The destination exists already, or replacing it would destroy something else."""


class FormatError(FastloadError, ValueError):
    """A folder is no packed dataset, or one that this release cannot read."""


class DamageError(FastloadError, OSError):
    """Stored bytes differ from what their checksum says, or are not those of this dataset."""


class AccessError(FastloadError, OSError):
    """A file cannot be opened by this process: permissions of a packed dataset, too many open files."""


class DecodeError(FastloadError, ValueError):
    """Bytes are not an image that can be read."""


class RecordIndexError(FastloadError, IndexError):
    """An index lies outside the dataset."""


class UnpicklableError(FastloadError, PicklingError, TypeError, AttributeError):
    """What workers are to be sent cannot be pickled: Python raises any of the other three for that."""


class ToolMissingError(FastloadError, OSError):
    """A program that the chosen encoding needs is not installed."""


class LibraryMissingError(FastloadError, ImportError):
    """A Python library that is needed here is not installed, or cannot be imported."""


class SlowTransformWarning(UserWarning):
    """Transforms of other libraries in a Compose take time, and this is how much."""
