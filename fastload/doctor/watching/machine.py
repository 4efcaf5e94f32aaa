"""CPUs, limits and GPU of this machine, and their use by other programs."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Callable

import psutil
import torch

from fastload.doctor.findings import MachineState
from fastload.system.cpus import affine_cpus, cpu_quota, local_ranks
from fastload.system.memory import available_memory_bytes, shared_memory
from fastload.system.proc import descriptor_limit


class BusyWatch:
    """Measures how many CPUs other programs keep busy, from its creation to `state()`.

    They account for the machine's CPU time, except that of this process, its children and, under a launcher
    of several ranks, the other ranks.
    """

    def __init__(self) -> None:
        self._began, self._swapped_bytes = _readings(), _swapped_bytes()

    def state(self) -> MachineState:
        """Return the state of the machine."""
        cpus, quota, ranks = affine_cpus(), cpu_quota(), local_ranks()
        usable = float(cpus) if quota is None else min(float(cpus), quota)
        elapsed_s, others_s = (after - before for after, before in zip(_readings(), self._began, strict=True))
        shared = shared_memory()
        free_bytes, device_bytes = torch.cuda.mem_get_info() if torch.cuda.is_initialized() else (0, 0)  # type: ignore[no-untyped-call]
        return MachineState(
            usable_cpus=usable / ranks,
            cpus=max(1, cpus // ranks),
            open_files=descriptor_limit(),
            shared_memory_bytes=None if shared is None else shared.total_bytes,
            available_bytes=available_memory_bytes(),
            other_cpus=max(0.0, others_s) / elapsed_s if elapsed_s > 0.1 else 0.0,
            memory_bytes=psutil.virtual_memory().total,
            swapped_bytes=_swapped_bytes() - self._swapped_bytes,
            free_device_bytes=free_bytes,
            device_bytes=device_bytes,
        )


def _swapped_bytes() -> int:
    with warnings.catch_warnings(), contextlib.suppress(OSError, RuntimeError):
        warnings.simplefilter("ignore")  # of a container that hides it
        return int(psutil.swap_memory().sout)
    return 0


def _readings() -> tuple[float, float]:
    """Return the time, and the CPU seconds of other programs and other virtual machines so far."""
    # The ranks of a machine are children of one launcher.
    job, machine = psutil.Process(os.getppid() if local_ranks() > 1 else None), psutil.cpu_times()
    ended = job.cpu_times()
    job_s = ended.user + ended.system + ended.children_user + ended.children_system
    job_s += process_cpu_s(*(child.pid for child in job.children(recursive=True)))
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return time.perf_counter(), sum(getattr(machine, name, 0.0) for name in names) - job_s


def process_cpu_s(*processes: int) -> float:
    """Return the CPU seconds of some processes; those that have ended count as 0."""
    total_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            total_s += times.user + times.system
    return total_s


class GpuWatch:
    """Reads the utilisation (0 to 1) of this process's GPU, each quarter of a second at most.

    `utilization` returns it, or None while no GPU is used. Without a driver, nvidia-ml-py or such a reading,
    it raises an error of its own, and is not called again.
    """

    def __init__(self, utilization: Callable[[], float | None] | None = None, each_s: float = 0.25) -> None:
        self._utilization, self._each_s = utilization or _utilization, each_s
        self._next_at = 0.0
        self._read: list[float] = []

    def read(self) -> None:
        """Read once more if the latest reading was long enough ago."""
        now = time.perf_counter()
        if now >= self._next_at:
            try:
                share = self._utilization()
                self._next_at = now + self._each_s
            except Exception:
                self._next_at, share = math.inf, None
            self._read += [] if share is None else [share]

    @property
    def share(self) -> float:
        """The mean utilisation; 0 if unknown."""
        return sum(self._read) / (len(self._read) or 1)


def _utilization() -> float | None:
    """Return the utilisation of the GPU on which this process used most memory; None before it uses one."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    device = max(range(torch.cuda.device_count()), key=torch.cuda.max_memory_allocated)
    return torch.cuda.utilization(device) / 100
