"""NVIDIA GPUs, read through NVML (nvidia-ml-py, the optional extra `gpu`) without starting CUDA.

NVML lists every GPU of the machine, in the order of the PCI bus. CUDA, and so torch, shows only those in
`CUDA_VISIBLE_DEVICES`, renumbered, by default the fastest first: match them by uuid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, numbered as by NVML, which need not be torch's order."""

    index: int
    name: str
    memory_bytes: int  # 0 if unknown
    used_bytes: int  # by all processes
    utilization: float | None  # the share of the last second in which it computed, 0 to 1
    uuid: str = ""  # "GPU-…", the same in every process


@contextlib.contextmanager
def gpu_reader(nvml: Any = None) -> Iterator[Callable[[], tuple[Gpu, ...]]]:
    """Keep NVML open, which takes much longer than a reading, and yield a function that reads the GPUs.

    The function returns () without nvidia-ml-py or a driver, and never raises. `nvml` is the module `pynvml`,
    or one like it.
    """
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            yield tuple
            return
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield tuple
        return
    try:
        yield lambda: _read_all(nvml)
    finally:
        nvml.nvmlShutdown()


def _read_all(nvml: Any) -> tuple[Gpu, ...]:
    def ask(function: Callable[..., Any], *arguments: Any, default: Any = None) -> Any:
        """Call a function of NVML; return the default where the driver refuses or lacks the function."""
        try:
            return function(*arguments)
        except nvml.NVMLError:
            return default

    found = []
    for index in range(ask(nvml.nvmlDeviceGetCount, default=0)):
        device = ask(nvml.nvmlDeviceGetHandleByIndex, index)
        if device is None:  # it has fallen off the bus
            continue
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, device)
        rates = ask(nvml.nvmlDeviceGetUtilizationRates, device)
        found.append(
            Gpu(
                index,
                name=ask(nvml.nvmlDeviceGetName, device, default="GPU"),
                memory_bytes=0 if memory is None else int(memory.total),
                used_bytes=0 if memory is None else int(memory.used),
                utilization=None if rates is None else rates.gpu / 100,
                uuid=ask(nvml.nvmlDeviceGetUUID, device, default=""),
            )
        )
    return tuple(found)
