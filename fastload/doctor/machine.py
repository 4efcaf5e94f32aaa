"""What the diagnosis needs to know of this machine."""

from __future__ import annotations

import os

from fastload.loader.diagnosis.measurements import Limits
from fastload.system.overview import Machine


def limits_of(machine: Machine) -> Limits:
    """What the machine allows."""
    shared, files = machine.shared_memory, machine.open_files
    return Limits(
        open_files=None if files is None else files.soft,
        shared_memory_bytes=None if shared is None else shared.total_bytes,
        shared_memory_free_bytes=None if shared is None else shared.free_bytes,
        available_bytes=machine.available_bytes,
    )


def cpus_of(machine: Machine) -> tuple[float, int]:
    """The CPUs' worth of time that this process may use, and the CPUs that it may run on: a rank's part."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if has_affinity else machine.cpus
    quota = machine.cpu_quota
    usable = float(cpus) if quota is None else min(float(cpus), quota)
    return usable / machine.ranks, max(1, cpus // machine.ranks)
