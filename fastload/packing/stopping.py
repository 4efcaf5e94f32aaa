"""Errors that stop a packing, each with the next step."""

from __future__ import annotations

import os
from pathlib import Path

from fastload.errors import FastloadError, PackError
from fastload.sources.files import OUT_OF_DESCRIPTORS

_RESUMES = "what is finished is kept, and the same command resumes"


def explained(error: Exception, place: Path) -> FastloadError:
    """Return an error in a form that says what to do, and that any process can unpickle.

    Args:
        error: What stopped the packing.
        place: Where it writes, for an error that names no file.
    """
    if isinstance(error, FastloadError):
        return error
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else error
        if error.errno in OUT_OF_DESCRIPTORS:
            return PackError(
                f"{error.filename or place}: cannot be opened ({reason}): raise the limit "
                f"('ulimit -n 4096'); {_RESUMES}"
            )
        return PackError(f"{error.filename or place}: cannot be written ({reason}): {_RESUMES}")
    if isinstance(error, MemoryError):
        return PackError(
            "a packing process ran out of memory: store smaller images, or pack with fewer workers"
        )
    return PackError(
        f"a packing process failed with {type(error).__name__} ({error}), which is a defect of fastload or "
        "of the source's own code: --debug, or the cause of this error, shows where"
    )
