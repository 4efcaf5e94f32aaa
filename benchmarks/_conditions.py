"""Conditions of a measurement: the commit, and all of them for reading."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastload
from fastload.system.units import format_count


def conditions_line(conditions: Mapping[str, Any]) -> str:
    """Return date, commit, machine and versions as a sentence."""
    machine, versions = conditions["machine"], conditions["versions"]
    return (
        f"{conditions['date']}, commit {conditions['commit']}; {machine['processor']}, "
        f"{format_count(machine['usable_cpus'], 'usable CPU')}, {machine['system']}, load "
        f"{machine['load_before']} at the start. "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}."
    )


def warning(conditions: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the first sentence of the report of a smoke run."""
    return (f"This was a smoke run: its {conditions['smoke']}.",) if "smoke" in conditions else ()


def commit() -> str:
    """Return the commit of this checkout, marked if the measured code differs from it; else `unknown`."""
    root = Path(fastload.__file__).parent.parent
    if not (root / ".git").exists():
        return "unknown"
    measured = ("fastload", "benchmarks/*.py")
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", root, *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (
                ("rev-parse", "--short", "HEAD"),
                ("status", "--porcelain", "--", *measured),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changes else head
