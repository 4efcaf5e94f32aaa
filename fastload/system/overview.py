"""Everything that is known of this machine, in one reading."""

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
    """What this process may use of its machine, at one moment.

    Attributes:
        cpu_name: The model of the CPU.
        cpus: How many CPUs the machine has.
        usable_cpus: How many of them this process can keep busy.
        cpu_quota: The CPUs' worth of time that control groups allow; None: no limit.
        memory_bytes: The most memory that it could have; None where the system does not say.
        available_bytes: What it can take now without swapping; None where the system does not say.
        shared_memory: Of /dev/shm; None where there is none.
        open_files: The file descriptors; None on Windows.
        ranks: How many training processes of the job share the machine, at least 1.
        gpus: The NVIDIA GPUs of the machine, whichever processes may use.
    """

    cpu_name: str
    cpus: int
    usable_cpus: int
    cpu_quota: float | None
    memory_bytes: int | None
    available_bytes: int | None
    shared_memory: SharedMemory | None
    open_files: OpenFiles | None
    ranks: int
    gpus: tuple[Gpu, ...]


def read_machine() -> Machine:
    """Reads what this process may use of its machine: in milliseconds without GPUs, some tens with them."""
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
    """Returns 16 hexadecimal digits that stay the same from run to run, and differ between machines.

    They stand for the host, its CPU and GPU models, the CPUs that may be used and the memory in GiB (a
    kernel's update changes its last digits).

    Args:
        machine: The machine.
        host: Its name; None: what the system says. It is kept out of `Machine`, which reports show.
    """
    stays = (
        platform.node() if host is None else host,
        machine.cpu_name,
        machine.usable_cpus,
        None if machine.memory_bytes is None else round(machine.memory_bytes / 2**30),
        [gpu.name for gpu in machine.gpus],
    )
    return hashlib.sha256(json.dumps(stays).encode()).hexdigest()[:16]
