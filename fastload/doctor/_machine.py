"""CPUs, limits and GPU of this machine, and what other programs take of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import torch

from fastload.doctor.findings import MachineState
from fastload.system.cpus import affine_cpus, cpu_quota, local_ranks
from fastload.system.descriptors import open_files
from fastload.system.gpus import gpu_reader
from fastload.system.memory import available_memory_bytes, shared_memory

_GPU_EACH_S = 0.25


class BusyWatch:
    """Measures how many CPUs other programs keep busy, from its creation to `state()`.

    That is all CPU time of the machine, except this process's and its children's.
    """

    def __init__(self) -> None:
        self._began = _readings()

    def state(self) -> MachineState:
        """Return the state of the machine."""
        cpus, quota, ranks = affine_cpus(), cpu_quota(), local_ranks()
        usable = float(cpus) if quota is None else min(float(cpus), quota)
        at, others_s, stolen_s = (
            after - before for after, before in zip(_readings(), self._began, strict=True)
        )
        shared, files = shared_memory(), open_files()
        return MachineState(
            usable_cpus=usable / ranks,
            cpus=max(1, cpus // ranks),
            open_files=None if files is None else files.soft,
            shared_memory_bytes=None if shared is None else shared.total_bytes,
            available_bytes=available_memory_bytes(),
            other_cpus=max(0.0, others_s) / at if at > 0.1 else 0.0,
            stolen_cpus=max(0.0, stolen_s) / at if at > 0.1 else 0.0,
        )


def _readings() -> tuple[float, float, float]:
    """Return the time, and the CPU seconds of other programs and of the hypervisor so far."""
    own, machine = psutil.Process(), psutil.cpu_times()
    ended = own.cpu_times()
    own_s = ended.user + ended.system + ended.children_user + ended.children_system
    own_s += process_cpu_s(*(child.pid for child in own.children(recursive=True)))
    names = ("user", "nice", "system", "irq", "softirq")
    busy_s = sum(getattr(machine, name, 0.0) for name in names)
    return time.perf_counter(), busy_s - own_s, getattr(machine, "steal", 0.0)


def process_cpu_s(*processes: int) -> float:
    """Return the CPU seconds of some processes; those that have ended count as 0."""
    total_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            total_s += times.user + times.system
    return total_s


class GpuWatch:
    """Reads NVML four times a second; there are no readings without NVML or a GPU."""

    def __init__(self, session: Callable[[], Any] = gpu_reader, each_s: float = _GPU_EACH_S) -> None:
        self._session = session
        self._each_s = each_s
        self._readings: list[tuple[float, Any]] = []
        self._stopping = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Read meanwhile."""
        thread = threading.Thread(target=self._watch, name="fastload-doctor-gpu", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _watch(self) -> None:
        with self._session() as read:
            is_there = bool(read())
            while is_there and not self._stopping.wait(self._each_s):
                self._readings.append((time.perf_counter(), read()))

    def busy(self, span: tuple[float, float], uuid: str) -> tuple[float, ...]:
        """Return the utilisation (0 to 1) of a GPU at each reading within a span of `time.perf_counter`."""
        return tuple(
            gpu.utilization or 0.0
            for at, gpus in self._readings
            for gpu in gpus
            if span[0] <= at <= span[1] and uuid and gpu.uuid == uuid
        )


def gpu_in_use() -> str:
    """Return the uuid, as NVML writes it, of the GPU on which this process used most memory; "" for none."""
    with contextlib.suppress(Exception):
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            device = max(range(torch.cuda.device_count()), key=torch.cuda.max_memory_allocated)
            return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    return ""
