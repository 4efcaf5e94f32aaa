"""CPUs and limits of this machine, and the CPU time of other programs."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from fastload.doctor.findings import MachineState
from fastload.system.cpus import affine_cpus, cpu_quota, local_ranks
from fastload.system.descriptors import open_files
from fastload.system.memory import available_memory_bytes, shared_memory

_TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


class BusyWatch:
    """Watches how many CPUs other programs keep busy, from its making until `state()`.

    All busy time of /proc/stat counts that is not this process's own or its children's (proc(5)).
    """

    def __init__(self) -> None:
        self._began = _readings()

    def state(self) -> MachineState:
        """Return the state of the machine."""
        cpus, quota, ranks = affine_cpus(), cpu_quota(), local_ranks()
        usable = float(cpus) if quota is None else min(float(cpus), quota)
        at, busy_s, stolen_s, own_s = (
            after - before for after, before in zip(_readings(), self._began, strict=True)
        )
        shared, files = shared_memory(), open_files()
        return MachineState(
            usable_cpus=usable / ranks,
            cpus=max(1, cpus // ranks),
            open_files=None if files is None else files.soft,
            shared_memory_bytes=None if shared is None else shared.total_bytes,
            available_bytes=available_memory_bytes(),
            other_cpus=max(0.0, busy_s - own_s) / at if at > 0.1 else 0.0,
            stolen_cpus=max(0.0, stolen_s) / at if at > 0.1 else 0.0,
        )


def _readings() -> tuple[float, float, float, float]:
    """Return the time, and the CPU seconds of all programs, the hypervisor, and this process tree."""
    busy_s = stolen_s = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[1:9])
        busy_s, stolen_s = _TICK_S * (user + nice + system + irq + softirq), _TICK_S * steal
    own_s = sum(os.times()[:4])  # with children that have ended
    return time.perf_counter(), busy_s, stolen_s, own_s + _living_s()


def _living_s() -> float:
    """Return the CPU seconds of the children that live."""
    total_s = 0.0
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            total_s += sum(process_cpu_s(int(child)) for child in path.read_text(encoding="ascii").split())
    return total_s


def process_cpu_s(process: int) -> float:
    """Return the CPU seconds of a process, of all its threads; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The program's name stands in brackets and may hold spaces.
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return _TICK_S * (int(fields[11]) + int(fields[12]))
    return 0.0
