"""Loaders in separate processes, each with the Python of its environment; see peers/epochs.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _harness import Reading, folder_bytes, user_environment

# Includes packing and FFCV's compilation; a peer's writer can wait forever.
_READY_TIMEOUT_S = 1800
_TURN_TIMEOUT_S = 600
# Pause between turns, for work that the last one left running: DALI decodes its next batches.
_REST_S = 0.3


class Driver:
    """The process of a loader, warmed up, and idle between its turns; `versions` are those of its packages.

    Raises:
        RuntimeError: The process failed; the message has its output.
    """

    def __init__(self, python: Path, program: Path, job: Mapping[str, Any]) -> None:
        self._name = f"{program.name} {job}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        self._process = subprocess.Popen(
            [python, program, json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=user_environment(),
            start_new_session=True,
        )
        try:
            ready = self._answer(_READY_TIMEOUT_S)
            self.versions: dict[str, str] = ready["versions"]
            self._stored_bytes = folder_bytes(Path(ready["stored"]))
        except BaseException:
            self.close()
            raise

    def turn(self, count: int) -> Reading:
        """Load whole epochs for a while and return the time of `count` samples."""
        time.sleep(_REST_S)
        before = _tree_cpu_s(self._process.pid)
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        took = self._answer(_TURN_TIMEOUT_S)
        share = count / took["samples"]
        after = _tree_cpu_s(self._process.pid)
        cpu_s = None if before is None or after is None else (after - before) * share
        return Reading(took["seconds"] * share, cpu_s, self._stored_bytes)

    def close(self) -> None:
        """End the process and those that it started."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._kill()
        self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]
        self._errors.close()

    def _answer(self, timeout_s: float) -> Any:
        timer = threading.Timer(timeout_s, self._kill)
        timer.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._kill()
            code = self._process.wait()
            self._errors.seek(0)
            output = self._errors.read().decode(errors="replace").strip()
            raise RuntimeError(f"{self._name} ended with {code}: {output[-3000:]}")
        return json.loads(line)

    def _kill(self) -> None:
        """End the process group with its workers, which a killed process leaves behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _tree_cpu_s(root: int) -> float | None:
    """Return the CPU time of a process and its descendants, living or ended; None without /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            ticks[pid] = sum(map(int, fields[11:15]))
    if root not in ticks:
        return None
    total, level = 0, {root}
    while level:
        total += sum(ticks[pid] for pid in level)
        level = {pid for pid, parent in parents.items() if parent in level}
    return total / os.sysconf("SC_CLK_TCK")
