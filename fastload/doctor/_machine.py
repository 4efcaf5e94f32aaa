"""CPUs, limits and GPU of this machine, and their use by other programs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import torch

from fastload.doctor.findings import MachineState
from fastload.system.cpus import affine_cpus, cpu_quota, local_ranks
from fastload.system.descriptors import open_files
from fastload.system.gpus import Gpu, gpu_reader
from fastload.system.memory import available_memory_bytes, shared_memory

GpuReadings = list[tuple[float, tuple[Gpu, ...]]]
"""The GPUs at some times of `time.perf_counter`."""


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
        at, others_s = (after - before for after, before in zip(_readings(), self._began, strict=True))
        shared, files = shared_memory(), open_files()
        return MachineState(
            usable_cpus=usable / ranks,
            cpus=max(1, cpus // ranks),
            open_files=None if files is None else files.soft,
            shared_memory_bytes=None if shared is None else shared.total_bytes,
            available_bytes=available_memory_bytes(),
            other_cpus=max(0.0, others_s) / at if at > 0.1 else 0.0,
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
def reading_gpus(session: Callable[[], Any] = gpu_reader, each_s: float = 0.25) -> Iterator[GpuReadings]:
    """Read NVML during the block into the list that is yielded; it stays empty without NVML or a GPU."""
    readings: GpuReadings = []
    stopping = threading.Event()

    def read_all() -> None:
        with session() as read:
            is_there = bool(read())
            while is_there and not stopping.wait(each_s):
                readings.append((time.perf_counter(), read()))

    thread = threading.Thread(target=read_all, name="fastload-doctor-gpu", daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        stopping.set()
        thread.join()


def gpu_share(readings: GpuReadings, span: tuple[float, float], uuid: str) -> float:
    """Return a GPU's mean utilisation (0 to 1) within a span of `time.perf_counter`; 0 if unknown."""
    taken = [(at, gpu) for at, gpus in readings for gpu in gpus if gpu.uuid == uuid]
    busy = [gpu.utilization or 0.0 for at, gpu in taken if span[0] <= at <= span[1]]
    return sum(busy) / len(busy) if busy else 0.0


def gpu_in_use() -> str:
    """Return the uuid, as NVML writes it, of the GPU on which this process used most memory; "" for none."""
    with contextlib.suppress(Exception):
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            device = max(range(torch.cuda.device_count()), key=torch.cuda.max_memory_allocated)
            return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    return ""
