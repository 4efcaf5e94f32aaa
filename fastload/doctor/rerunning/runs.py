"""Runs of the user's script with changes, one process after another, each within a bounded time."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastload.doctor.findings import StepTrial
from fastload.system.units import format_duration

# Beside the measured steps, a run starts Python, imports torch and perhaps compiles.
_START_S, _STARTS = 20.0, 3.0


@dataclass(frozen=True, slots=True)
class Job:
    """A trial: `words` come after `python`, `seconds` bounds the measured steps of the loader.

    With `is_evaluation`, epochs of other loaders are cut short.
    """

    words: list[str]
    changes: list[tuple[str, str]]
    loader: str
    seconds: float
    is_evaluation: bool = False


@dataclass
class ScriptRuns:
    """Runs of one script, which took `start_s` to its first step, in the folder and environment of its start.

    `on_trial` is told of each at its start (without a result) and at its end; `is_wanted` is True if changes
    are tried whatever the limit is.
    """

    words: Sequence[str]
    seconds: float
    on_trial: Callable[[str, StepTrial | None], None]
    is_wanted: bool = False
    folder: Path = Path()
    start_s: float = 0.0
    cwd: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(
        self, kind: str, value: str, changes: Sequence[tuple[str, str]], loader: str, is_evaluation: bool
    ) -> StepTrial:
        """Run the script once; a run that does not end in time is a failure."""
        job = Job(list(self.words), list(changes), loader, self.seconds, is_evaluation)
        name = f"{kind} {value}".strip() if value.isalnum() else kind  # other values are files and lines
        self.on_trial(name, None)
        trial = replace(self._result_of(job), kind=kind, value=value)
        self.on_trial(name, trial)
        return trial

    def _result_of(self, job: Job) -> StepTrial:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "trial").unlink(missing_ok=True)
        (self.folder / "job").write_bytes(pickle.dumps(job))
        most_s = _START_S + _STARTS * self.start_s + 2 * self.seconds
        command = [sys.executable, "-m", "fastload.doctor.rerunning.child", os.fspath(self.folder)]
        failure = f"it took more than {format_duration(most_s)} (see --trial-seconds)"
        # Into a file, as from 'train.py > log': printing costs time, too.
        with (self.folder / "output").open("wb") as output:
            options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "cwd": self.cwd}
            process = subprocess.Popen(command, env=self.environment, start_new_session=True, **options)  # type: ignore[call-overload]
            try:
                code = process.wait(most_s)
                last = (self.folder / "output").read_text(errors="replace").strip().splitlines()[-1:]
                failure = f"it ended with exit code {code}: {''.join(last)[:200]}"
            except subprocess.TimeoutExpired:
                pass
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        result = self.folder / "trial"
        return pickle.loads(result.read_bytes()) if result.exists() else StepTrial("", failure=failure)
