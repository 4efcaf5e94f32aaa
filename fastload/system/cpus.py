"""CPUs that this process may use, and the number of training processes that share them."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fastload.system.proc import PROC_SELF, cgroups_of, read_text

# "4", or "4(x2),3" by nodes.
_COUNTS = r"[0-9]{1,6}(\(x[0-9]{1,6}\))?(,[0-9]{1,6}(\(x[0-9]{1,6}\))?)*"

# Set by torchrun; Open MPI; MPICH and Intel MPI; Slurm, for the running step, then for the job.
_RANKS = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
)


def usable_cpus(proc_self: Path = PROC_SELF) -> int:
    """Return how many CPUs this process can keep busy, at least 1, by its affinity and its cgroup quota.

    A fraction of a CPU counts as one: 1.5 CPUs keep two workers busier than one.
    """
    cpus = affine_cpus()
    quota = cpu_quota(proc_self)
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def affine_cpus() -> int:
    """Return how many CPUs this process may run on, regardless of its quota."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(proc_self: Path = PROC_SELF) -> float | None:
    """Return the CPU time per second that the cgroups allow, in CPUs; None without a limit."""
    quotas = []
    for folder, version in cgroups_of("cpu", proc_self):
        if version == 2:
            quota, _, period = read_text(folder / "cpu.max").partition(" ")
        else:
            quota = read_text(folder / "cpu.cfs_quota_us")
            period = read_text(folder / "cpu.cfs_period_us")
        # "max" (version 2) and -1 (version 1) mean no limit; the topmost cgroup has no such file.
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Return how many training processes (ranks) of this job run on this machine, at least 1.

    It is read from the variables of torchrun, MPI or Slurm, in this order; it is the largest if Slurm lists
    several nodes, as in "4(x2),3".
    """
    for name in _RANKS:
        text = environ.get(name, "")
        if re.fullmatch(_COUNTS, text):
            return max(1, *(int(count) for count in re.findall(r"(?:^|,)(\d+)", text)))
    return 1


def local_rank() -> int:
    """Return the process's rank on its machine, as torchrun sets it; 0 for a single process."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else 0


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the CPU model."""
    found = re.search(r"^model name\s*: (.+)$", read_text(cpuinfo), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


class SchedulingDelay:
    """Time for which the thread that creates it was ready to run but no CPU was free.

    It is the second figure of /proc's `schedstat`, in nanoseconds (the kernel's sched-stats.rst).
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._descriptor = -1
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def seconds(self) -> float:
        """Return the sum so far; 0 where the kernel does not provide it."""
        if sys.platform != "linux":
            return 0.0
        try:
            return int(os.pread(self._descriptor, 64, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def __del__(self, getpid: Callable[[], int] = os.getpid, close: Callable[[int], None] = os.close) -> None:
        # In a forked child, the descriptor may be that of another file; at Python's end, `os` may be gone.
        if self._descriptor >= 0 and self._process == getpid():
            close(self._descriptor)
