"""CPUs, limits and GPU of this machine, and their use by other programs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import torch

from fastload.doctor.findings import MachineState
from fastload.system.cpus import affine_cpus, cpu_quota, local_ranks
from fastload.system.descriptors import descriptor_limit
from fastload.system.memory import available_memory_bytes, shared_memory

GpuReadings = list[tuple[float, float]]
"""The utilisation (0 to 1) of a GPU at some times of `time.perf_counter`."""


class BusyWatch:
    """Measures how many CPUs other programs keep busy, from its creation to `state()`.

    They account for the machine's CPU time, except that of this process, its children and, under a launcher
    of several ranks, the other ranks.
    """

    def __init__(self) -> None:
        self._began = _readings()

    def state(self) -> MachineState:
        """Return the state of the machine."""
        cpus, quota, ranks = affine_cpus(), cpu_quota(), local_ranks()
        usable = float(cpus) if quota is None else min(float(cpus), quota)
        elapsed_s, others_s = (after - before for after, before in zip(_readings(), self._began, strict=True))
        shared = shared_memory()
        return MachineState(
            usable_cpus=usable / ranks,
            cpus=max(1, cpus // ranks),
            open_files=descriptor_limit(),
            shared_memory_bytes=None if shared is None else shared.total_bytes,
            available_bytes=available_memory_bytes(),
            other_cpus=max(0.0, others_s) / elapsed_s if elapsed_s > 0.1 else 0.0,
        )


def _readings() -> tuple[float, float]:
    """Return the time, and the CPU seconds of other programs and other virtual machines so far."""
    # The ranks of a machine are children of one launcher.
    own, machine = psutil.Process(os.getppid() if local_ranks() > 1 else None), psutil.cpu_times()
    ended = own.cpu_times()
    own_s = ended.user + ended.system + ended.children_user + ended.children_system
    own_s += process_cpu_s(*(child.pid for child in own.children(recursive=True)))
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return time.perf_counter(), sum(getattr(machine, name, 0.0) for name in names) - own_s


def process_cpu_s(*processes: int) -> float:
    """Return the CPU seconds of some processes; those that have ended count as 0."""
    total_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            total_s += times.user + times.system
    return total_s


@contextlib.contextmanager
def reading_gpu(
    read: Callable[[], float | None] | None = None, each_s: float = 0.25
) -> Iterator[GpuReadings]:
    """Yield a list to which readings of this process's GPU are added in the block; empty without a GPU."""
    readings: GpuReadings = []
    stopping = threading.Event()

    def read_all() -> None:
        # There may be no driver, no nvidia-ml-py, or no such reading: each raises an error of its own.
        with contextlib.suppress(Exception):
            while not stopping.wait(each_s):
                share = (read or _utilization)()
                if share is not None:
                    readings.append((time.perf_counter(), share))

    thread = threading.Thread(target=read_all, name="fastload-doctor-gpu", daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        stopping.set()
        thread.join()


def _utilization() -> float | None:
    """Return the utilisation of the GPU on which this process used most memory; None before it uses one."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    device = max(range(torch.cuda.device_count()), key=torch.cuda.max_memory_allocated)
    return torch.cuda.utilization(device) / 100


def gpu_share(readings: GpuReadings, span: tuple[float, float]) -> float:
    """Return the mean utilisation (0 to 1) within a span of `time.perf_counter`; 0 if unknown."""
    busy = [share for at, share in readings if span[0] <= at <= span[1]]
    return sum(busy) / len(busy) if busy else 0.0
