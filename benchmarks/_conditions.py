"""Conditions of a measurement, for reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
