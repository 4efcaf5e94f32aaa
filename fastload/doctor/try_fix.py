"""Running a script a second time with a fix in place that needs no change of its code."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from fastload.doctor.examine import ScriptReport
from fastload.doctor.findings import Fix
from fastload.doctor.machine import BusyWatch
from fastload.doctor.script import find_module, find_script, run_script
from fastload.doctor.watch import Watcher
from fastload.doctor.workspace import workspace
from fastload.loader.dataloader import DataLoader as FastloadDataLoader


@dataclass(frozen=True, slots=True)
class Attempt:
    """The second run.

    Attributes:
        fix: What was in place.
        before_per_s: The throughput of the first run, the start of workers included; of `unit` a second.
        after_per_s: That of the second; 0 where it gave no batches.
        skipped: The fix that comes first but needs a change of the code; None if that is `fix`.
        error: How the second run ended, if not well.
    """

    fix: Fix
    before_per_s: float
    after_per_s: float
    unit: str
    batches: int
    skipped: Fix | None
    error: str

    def __str__(self) -> str:
        lines = []
        if self.skipped is not None:
            lines += [f"The first fix needs a change of the code: {self.skipped.action}"]
        lines += [f"Tried for {self.batches:,} batches: {self.fix.action}"]
        if self.after_per_s <= 0:
            return "\n".join([*lines, f"  It gave nothing to measure. {self.error}".rstrip()])
        lines += [
            f"  before: {self.before_per_s:,.1f} {self.unit}/s",
            f"  after: {self.after_per_s:,.1f} {self.unit}/s",
        ]
        ratio = self.after_per_s / self.before_per_s if self.before_per_s > 0 else 0.0
        return "\n".join([*lines, f"  measured gain: {ratio:.2f} ×"])


def try_first_fix(
    report: ScriptReport, path: str, is_module: bool, arguments: Sequence[str]
) -> Attempt | str:
    """Run the script again for as many batches with the first fix that needs no change of its code.

    Returns:
        What was measured, or the reason why nothing could be tried.
    """
    if not report.examinations:
        return "There is nothing to try: no batch was loaded."
    [main, *_] = report.examinations
    fixes = main.diagnosis.fixes
    if not fixes:
        return "There is nothing to try: no fix was found."
    fix = next((one for one in fixes if one.arguments), None)
    if fix is None:
        return f"The first fix needs a change of the code, and no other can do without: {fixes[0].action}"
    measured = main.measured
    with workspace() as folder:
        spec, result = folder / "fix.json", folder / "result.json"
        content = {
            "arguments": fix.arguments,
            "dataset": main.name.partition(" of ")[0],
            "batches": max(1, report.batches),
            "path": path,
            "is_module": is_module,
            "script_arguments": list(arguments),
            "result": str(result),
        }
        spec.write_text(json.dumps(content), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "fastload.doctor.try_fix", str(spec)], check=False)
        after: dict[str, Any] = {"samples_per_s": 0.0, "error": "It ended before its end could be noted."}
        with contextlib.suppress(OSError, ValueError):
            after = json.loads(result.read_text(encoding="utf-8"))
    skipped = None if fix is fixes[0] else fixes[0]
    return Attempt(
        fix,
        measured.overall_per_s,
        after["samples_per_s"],
        measured.unit,
        report.batches,
        skipped,
        after["error"],
    )


@contextlib.contextmanager
def changed_loaders(arguments: dict[str, Any], dataset: str) -> Iterator[None]:
    """Change the arguments, or the class, of loaders of a dataset's class while a script makes them."""

    def has_dataset(given: tuple[Any, ...], options: dict[str, Any]) -> bool:
        return type(given[0] if given else options.get("dataset")).__name__ == dataset

    def changed(original: Callable[..., None]) -> Callable[..., None]:
        code = original.__code__
        names = code.co_varnames[1 : code.co_argcount]

        def __init__(self: Any, *given: Any, **options: Any) -> None:
            if has_dataset(given, options):
                options.update(zip(names, given, strict=False))
                options.update(arguments)
                given = ()
                if not options.get("num_workers"):
                    # torch refuses them where there are no workers.
                    for name in (
                        "prefetch_factor",
                        "multiprocessing_context",
                        "persistent_workers",
                        "timeout",
                    ):
                        options.pop(name, None)
            original(self, *given, **options)

        return __init__

    def changed_new(kind: type[Any], *given: Any, **options: Any) -> Any:
        # Python then calls `__init__` of the class that is really made.
        return object.__new__(
            FastloadDataLoader if kind is DataLoader and has_dataset(given, options) else kind
        )

    if arguments.get("class") == "fastload.DataLoader":
        DataLoader.__new__ = changed_new  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del DataLoader.__new__
        return
    kinds: tuple[Any, ...] = (DataLoader, FastloadDataLoader)
    originals = [kind.__init__ for kind in kinds]
    for kind, original in zip(kinds, originals, strict=True):
        kind.__init__ = changed(original)
    try:
        yield
    finally:
        for kind, original in zip(kinds, originals, strict=True):
            kind.__init__ = original


def main(spec: Path) -> None:
    """Run the script that a file names, and write its throughput to another file."""
    content = json.loads(spec.read_text(encoding="utf-8"))
    path, arguments = content["path"], content["script_arguments"]
    script = find_module(path, arguments) if content["is_module"] else find_script(Path(path), arguments)
    busy = BusyWatch()
    with workspace() as folder:
        watcher = Watcher(folder, steps=content["batches"])
        with changed_loaders(content["arguments"], content["dataset"]), watcher.watching():
            ending = run_script(script)
        found = [
            record.measured(watcher.logs_of(record), busy.state())
            for record in watcher.records
            if type(record.view.dataset).__name__ == content["dataset"]
        ]
        rates = [measured.overall_per_s for measured in sorted(found, key=lambda each: -each.batches)]
        error = "" if watcher.was_cut else ending.text
        result = {"samples_per_s": rates[0] if rates else 0.0, "error": error}
        Path(content["result"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
