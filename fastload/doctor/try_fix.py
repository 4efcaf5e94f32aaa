"""Second run of a script, with a fix that needs no change to its code."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from fastload.doctor._evidence import rate_text
from fastload.doctor._machine import BusyWatch
from fastload.doctor._watch import Watcher
from fastload.doctor.examine import ScriptReport
from fastload.doctor.findings import Fix
from fastload.loader.dataloader import DataLoader as FastloadDataLoader
from fastload.system.patching import patched
from fastload.system.script import Ending, Script, find, run_script

# torch refuses these arguments if there are no workers.
_OF_WORKERS = ("prefetch_factor", "multiprocessing_context", "persistent_workers", "timeout")


@dataclass(frozen=True, slots=True)
class Attempt:
    """The throughputs of both runs, with the start of workers; `after_per_s` is 0 without batches."""

    fix: Fix
    before_per_s: float
    after_per_s: float
    unit: str
    batches: int
    error: str

    def __str__(self) -> str:
        lines = [f"Tried for {self.batches:,} batches: {self.fix.action}"]
        if not self.after_per_s or not self.before_per_s:
            return "\n".join([*lines, f"  There was nothing to measure. {self.error}".rstrip()])
        lines += [
            f"  before: {rate_text(self.before_per_s, self.unit)}",
            f"  after: {rate_text(self.after_per_s, self.unit)}",
            f"  measured gain: {self.after_per_s / self.before_per_s:.2f} ×",
        ]
        return "\n".join(lines)


def try_first_fix(
    report: ScriptReport, path: str, is_module: bool, arguments: Sequence[str]
) -> Attempt | str:
    """Run the script again with one fix, or return the reason why none can be tried.

    It is the first fix that consists of arguments; loaders with longer waits come first.
    """
    by_waits = sorted(report.examinations, key=lambda part: -part.measured.waited_s)
    found = [(part, fix) for part in by_waits for fix in part.diagnosis.fixes]
    if not found:
        return "There is nothing to try: no fix was found."
    main, fix = next((each for each in found if each[1].arguments), found[0])
    if not fix.arguments:
        return f"No fix can be tried without a change to the code; the first is: {fix.action}"
    after: dict[str, Any] = {"samples_per_s": 0.0, "error": "It ended before its throughput was known."}
    with tempfile.TemporaryDirectory(prefix="fastload-doctor-", ignore_cleanup_errors=True) as folder:
        content = {
            "changes": fix.arguments,
            "dataset": main.name.partition(" of ")[0],
            "number": main.number,
            "batches": max(1, report.batches),
            "folder": folder,
            "script": [path, is_module, list(arguments)],
        }
        subprocess.run([sys.executable, "-m", "fastload.doctor.try_fix", json.dumps(content)], check=False)
        with contextlib.suppress(OSError, ValueError):
            after = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
    before_per_s, unit = main.measured.overall_per_s, main.measured.unit
    return Attempt(fix, before_per_s, after["samples_per_s"], unit, report.batches, after["error"])


def changed_loaders(changes: dict[str, Any], dataset: str) -> contextlib.AbstractContextManager[None]:
    """Change the arguments or the class of loaders of this class of dataset that are created in the block."""

    def changed_init(kind: Any, original: Any) -> Any:
        known = signature(original)

        def __init__(self: Any, *given: Any, **options: Any) -> None:
            named = known.bind(self, *given, **options).arguments
            is_base = kind is DataLoader and isinstance(self, FastloadDataLoader)
            if is_base or type(named["dataset"]).__name__ != dataset:
                original(self, *given, **options)
                return
            del named["self"]
            is_replaced = "class" in changes and type(self) is DataLoader
            if is_replaced:
                self.__class__ = FastloadDataLoader
                FastloadDataLoader.__init__(self, **named)
                return
            named |= {name: value for name, value in changes.items() if name in known.parameters}
            if not named.get("num_workers"):
                named = {name: value for name, value in named.items() if name not in _OF_WORKERS}
            original(self, **named)

        return __init__

    kinds: tuple[Any, ...] = (DataLoader, FastloadDataLoader)
    return patched(*((kind, "__init__", changed_init(kind, kind.__init__)) for kind in kinds))


def _around_script(content: dict[str, Any]) -> Generator[Script, Ending, int]:
    """Yield the script, to be run with changed loaders, and write its throughput to a file."""
    folder, dataset = Path(content["folder"]), content["dataset"]
    script, busy = find(*content["script"]), BusyWatch()
    watcher = Watcher(folder, steps=content["batches"])
    with changed_loaders(content["changes"], dataset), watcher.watching():
        ending = yield script
    rate = 0.0
    for record in watcher.records[content["number"] :][:1]:
        rate = record.measured(watcher.logs_of(record), busy.state()).overall_per_s
    result = {"samples_per_s": rate, "error": "" if watcher.was_cut else ending.text}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    run_script(_around_script(json.loads(sys.argv[1])))
