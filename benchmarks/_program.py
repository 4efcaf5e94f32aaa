"""Programs that a comparison runs, each a process of its environment's Python; see peers/epochs.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from _harness import user_environment

from fastload.errors import FastloadError


class LoaderFailedError(FastloadError, RuntimeError):
    """The process of a loader ended; the message is the last line that it wrote."""


class Program:
    """A process with a job, which answers each line of its input with a line of JSON.

    The process and its descendants are one process group, which `close` ends.
    """

    def __init__(
        self,
        python: Path,
        program: Path,
        job: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        self._process = subprocess.Popen(
            [str(python), str(program), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**user_environment(), **(environment or {})},
            start_new_session=True,
        )

    def ask(self) -> None:
        """Request a line."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: the answer says so
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def answer(self, timeout_s: float) -> Any:
        """Return the content of the next line.

        Raises:
            LoaderFailedError: The process ended instead, or gave no answer within the timeout.
        """
        timer = threading.Timer(timeout_s, self._kill)
        timer.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)  # it closes its output before it ends
            self._kill()
            code = self._process.wait()
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").split("\n")
            last_line = next((text.strip() for text in reversed(lines) if text.strip()), "it wrote nothing")
            raise LoaderFailedError(f"ended with {code}: {last_line[:500]}")
        return json.loads(line)

    def tree(self) -> list[psutil.Process]:
        """Return the process and its descendants."""
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def cpu_s(self) -> float:
        """Return the CPU time of the process and its descendants, living or ended."""
        total = 0.0
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])
        return total

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

    def _kill(self) -> None:
        """End the process group with its workers, which a killed process leaves behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
