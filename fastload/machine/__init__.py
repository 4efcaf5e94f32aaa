"""Readings of this machine: what this process may use of its CPUs, memory, descriptors and GPUs.

Containers limit most of it with control groups, which neither `os.cpu_count()` nor the CPU affinity nor
`/proc/meminfo` shows. Of all limits that the kernel tells, the tightest counts.
"""

from fastload.machine.cpus import affine_cpus, cpu_name, cpu_quota, local_ranks, usable_cpus
from fastload.machine.descriptors import OpenFiles, open_files
from fastload.machine.memory import SharedMemory, available_memory_bytes, memory_limit_bytes, shared_memory
from fastload.machine.nvml import Gpu, gpus
from fastload.machine.whole import Machine, identity, read_machine

__all__ = [
    "Gpu",
    "Machine",
    "OpenFiles",
    "SharedMemory",
    "affine_cpus",
    "available_memory_bytes",
    "cpu_name",
    "cpu_quota",
    "gpus",
    "identity",
    "local_ranks",
    "memory_limit_bytes",
    "open_files",
    "read_machine",
    "shared_memory",
    "usable_cpus",
]
