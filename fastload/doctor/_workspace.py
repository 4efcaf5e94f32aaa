"""A temporary folder that is removed even where this process is killed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# It ends when the pipe closes, which the system does however the writer ends, and removes what is left.
_GUARD = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """Make the folder, and a small process in a session of its own that outlives this one to remove it."""
    folder = Path(tempfile.mkdtemp(prefix="fastload-doctor-"))
    guard = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _GUARD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(timeout=5)
