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
    """A GPU: its uuid ("GPU-…"), and the share of the last second in which it computed, 0 to 1."""

    uuid: str
    utilization: float | None  # None if unknown


@contextlib.contextmanager
def gpu_reader(nvml: Any = None) -> Iterator[Callable[[], tuple[Gpu, ...]]]:
    """Keep NVML open, which takes much longer than a reading, and yield a function that reads the GPUs.

    The function returns () without nvidia-ml-py or a driver, and never raises. `nvml` replaces the module
    `pynvml`.
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
    found = []
    with contextlib.suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            with contextlib.suppress(nvml.NVMLError):  # the GPU has fallen off the bus
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                found.append(Gpu(nvml.nvmlDeviceGetUUID(device), _utilization(nvml, device)))
    return tuple(found)


def _utilization(nvml: Any, device: Any) -> float | None:
    try:
        return float(nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100)
    except nvml.NVMLError:  # not every GPU reports it
        return None
