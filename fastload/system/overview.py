"""A summary of this machine: CPUs, memory, open files, GPUs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass

from fastload.system.cpus import cpu_name, cpu_quota, local_ranks, usable_cpus
from fastload.system.descriptors import OpenFiles, open_files
from fastload.system.gpus import Gpu, gpus
from fastload.system.memory import SharedMemory, available_memory_bytes, memory_limit_bytes, shared_memory


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that this process may use, at one moment.

    `memory_bytes` is the most memory that the process could have, `available_bytes` what it can take now
    without swapping; `ranks` counts the job's training processes here, `gpus` all GPUs of the machine.
    """

    cpu_name: str
    cpus: int
    usable_cpus: int
    cpu_quota: float | None
    memory_bytes: int
    available_bytes: int
    shared_memory: SharedMemory | None
    open_files: OpenFiles | None
    ranks: int
    gpus: tuple[Gpu, ...]


def read_machine() -> Machine:
    """Return the machine's resources; takes milliseconds, with GPUs some tens of them."""
    return Machine(
        cpu_name=cpu_name(),
        cpus=os.cpu_count() or 1,
        usable_cpus=usable_cpus(),
        cpu_quota=cpu_quota(),
        memory_bytes=memory_limit_bytes(),
        available_bytes=available_memory_bytes(),
        shared_memory=shared_memory(),
        open_files=open_files(),
        ranks=local_ranks(),
        gpus=gpus(),
    )


def identity(machine: Machine, host: str | None = None) -> str:
    """Return 16 hexadecimal digits that identify a machine, the same in every run.

    They hash the host name (never stored in `Machine`, which reports show), the CPU and GPU models, the
    usable CPUs and the memory in GiB (a kernel update changes its last digits).
    """
    stable = (
        platform.node() if host is None else host,
        machine.cpu_name,
        machine.usable_cpus,
        round(machine.memory_bytes / 2**30),
        [gpu.name for gpu in machine.gpus],
    )
    return hashlib.sha256(json.dumps(stable).encode()).hexdigest()[:16]
