"""Runs of the command line as processes of their own."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import warm

FASTLOAD = [sys.executable, "-m", "fastload"]
_TIMEOUT_S = 280


def start_python(*words: object, **options: Any) -> subprocess.Popen[str]:
    """Start Python with a path, -c or -m, and arguments; options are those of `subprocess.Popen`."""
    command = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in words]
    options = {"text": True, "errors": "surrogateescape"} | options
    if warm.can_start(command, options.get("env") or os.environ):
        return warm.ForkedPython(command, **options)
    return subprocess.Popen([sys.executable, *command], **options)


def run_python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, and return what it wrote."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_python(*words, **pipes | options) as process:
        try:
            written = process.communicate(timeout=_TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess([*map(str, words)], process.returncode, *written)


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `fastload` to its end."""
    return run_python("-m", "fastload", *arguments, **options)


def run_on_terminal(*arguments: object, columns: int = 100, **environment: str) -> tuple[str, int]:
    """Run `fastload` on a terminal; return the text of both of its streams and its exit code."""
    import pty  # not on Windows

    parent, child = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns)} | environment
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), child)
    with start_python("-m", "fastload", *arguments, env=variables, **streams) as process:
        os.close(child)
        output = b""
        while True:
            try:
                block = os.read(parent, 1 << 16)
            except OSError:  # on Linux: the other end is closed
                break
            if not block:
                break
            output += block
    os.close(parent)
    return output.decode(errors="replace"), process.returncode


def start(arguments: Sequence[object], **options: Any) -> subprocess.Popen[str]:
    """Start `fastload` as the leader of a new session, so that all its processes can be found."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start_python("-m", "fastload", *arguments, start_new_session=True, **pipes | options)


def free_port() -> int:
    """Return a port on which nothing listens.

    It is outside of the range from which the kernel takes ports for others, and so stays free until a program
    that gets its number listens there.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def session_members(session: int) -> list[int]:
    """Return the living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def workers_of(session: int) -> list[int]:
    """Return the processes of a session that started no other, without the first one."""
    members = [member for member in session_members(session) if member != session]
    starters = {_parent(member) for member in members}
    return [member for member in members if member not in starters and not _tracks(member)]


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _tracks(process: int) -> bool:
    return b"resource_tracker" in Path(f"/proc/{process}/cmdline").read_bytes()


def wait_until_gone(session: int, timeout_s: float = 10.0) -> None:
    """Wait until no process of a session lives; fail if one stays."""
    end = time.monotonic() + timeout_s
    while members := session_members(session):
        assert time.monotonic() < end, f"processes are left behind: {members}"
        time.sleep(0.02)
