"""The CPUs that this process may use, and how many processes of its job share them."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from fastload.system.cgroups import PROC_SELF, groups_of, text_of

_CPUINFO = Path("/proc/cpuinfo")

# Set by torchrun; Open MPI; MPICH and Intel MPI; Slurm, for the step that runs, then for the job.
_RANKS = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
)


def usable_cpus(proc_self: Path = PROC_SELF) -> int:
    """Returns how many CPUs this process can keep busy, at least 1.

    That is the number of CPUs in its affinity mask, or its cgroup quota if that is less. A fraction
    of a CPU counts as one: 1.5 CPUs keep two workers busier than one.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
    """
    cpus = affine_cpus()
    quota = cpu_quota(proc_self)
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def affine_cpus() -> int:
    """Returns how many CPUs this process may run on, whatever its quota."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(proc_self: Path = PROC_SELF) -> float | None:
    """Returns the CPUs' worth of time that control groups allow, None where there is no limit.

    Args:
        proc_self: The folder `/proc/self`, or one like it, that names the control groups.
    """
    quotas = []
    for folder, version in groups_of("cpu", proc_self):
        if version == 2:
            quota, _, period = text_of(folder / "cpu.max").partition(" ")
        else:
            quota = text_of(folder / "cpu.cfs_quota_us")
            period = text_of(folder / "cpu.cfs_period_us")
        # No limit is "max" in version 2 and -1 in version 1; the topmost group has no such file.
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Returns how many training processes (ranks) of this process's job share this machine, at least 1.

    The launcher says: torchrun, MPI or Slurm, in this order. Slurm lists nodes as "4(x2),3"; of those,
    `SLURM_NODEID` tells which is this one, and without it the largest counts.

    Args:
        environ: The environment's variables.
    """
    for name in _RANKS:
        counts = _counts(environ.get(name, ""))
        if counts:
            node = environ.get("SLURM_NODEID", "")
            known = node.isdecimal() and int(node) < len(counts)
            return max(1, counts[int(node)] if known and len(counts) > 1 else max(counts))
    return 1


def cpu_name(cpuinfo: Path = _CPUINFO) -> str:
    """Returns the name of the CPU's model, as good as the system tells.

    Args:
        cpuinfo: The file `/proc/cpuinfo`, or one like it.
    """
    found = re.search(r"^model name\s*: (.+)$", text_of(cpuinfo), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def _counts(text: str) -> list[int]:
    """Reads "4" or "4(x2),3"; nothing where it is neither."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,6})(?:\(x(\d{1,6})\))?\s*", part, re.ASCII)
        if found is None:
            return []
        counts += [int(found[1])] * int(found[2] or 1)
    return counts
