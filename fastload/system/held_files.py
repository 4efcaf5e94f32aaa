"""Files without a name, such as anonymous memory, that processes of one user share.

A list names the processes that hold a file: a line each, with the PID, the descriptor, and the file's device
and inode. Others open the file through /proc/<pid>/fd, and the kernel frees it with the last of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def add_holder(users: Path, descriptor: int) -> None:
    """Add this process, which holds a file by its descriptor, to a list."""
    status = os.fstat(descriptor)
    with users.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {descriptor} {status.st_dev} {status.st_ino}\n")


def holders(users: Path) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yield the PID of each process in a list that holds the file still, its path there, and its status."""
    for line in users.read_text(encoding="utf-8").splitlines():
        process, number, *identity = map(int, line.split())
        path = f"/proc/{process}/fd/{number}"
        with contextlib.suppress(OSError):  # the process has ended since
            status = os.stat(path)
            # The PID or the descriptor may have been reused.
            if [status.st_dev, status.st_ino] == identity:
                yield process, path, status


def open_held(users: Path) -> int | None:
    """Return a descriptor of the file that the processes in a list hold; None if all have ended."""
    for _, path, wanted in holders(users):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            # Reused between looking at it and opening it.
            if os.path.samestat(os.fstat(descriptor), wanted):
                return descriptor
            os.close(descriptor)
    return None
