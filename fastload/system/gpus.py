"""NVIDIA GPUs, read through NVML (nvidia-ml-py, the optional extra `gpu`) without starting CUDA.

NVML lists every GPU of the machine, in the order of the PCI bus. CUDA, and so torch, shows only those in
`CUDA_VISIBLE_DEVICES`, renumbered, by default the fastest first: match them by uuid.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        index: Its number in NVML's order, which need not be torch's.
        name: Its model.
        memory_bytes: Its memory; 0 if the driver does not tell.
        used_bytes: How much of that is in use, by any process.
        utilization: Share of the last second in which it computed, 0 to 1; None if unknown.
        uuid: "GPU-…", the same in every process; "" if unknown.
    """

    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    utilization: float | None
    uuid: str = ""


def gpus() -> tuple[Gpu, ...]:
    """Return the machine's NVIDIA GPUs; () without nvidia-ml-py or a driver. Never raises."""
    with reading() as read:
        return read()


@contextlib.contextmanager
def reading(nvml: Any = None) -> Iterator[Callable[[], tuple[Gpu, ...]]]:
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
    with contextlib.ExitStack() as stack:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            yield tuple
            return
        stack.callback(nvml.nvmlShutdown)
        yield functools.partial(_read_all, nvml)


def _read_all(nvml: Any) -> tuple[Gpu, ...]:
    count = _ask(nvml, nvml.nvmlDeviceGetCount, default=0)
    devices = [(index, _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]
    # A GPU that has fallen off the bus has no handle: it is left out.
    return tuple(_read(nvml, index, device) for index, device in devices if device is not None)


def _read(nvml: Any, index: int, device: Any) -> Gpu:
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, device)
    rates = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, device)
    return Gpu(
        index,
        name=_ask(nvml, nvml.nvmlDeviceGetName, device, default="GPU"),
        memory_bytes=0 if memory is None else int(memory.total),
        used_bytes=0 if memory is None else int(memory.used),
        utilization=None if rates is None else rates.gpu / 100,
        uuid=_ask(nvml, nvml.nvmlDeviceGetUUID, device, default=""),
    )


def _ask(nvml: Any, function: Callable[..., Any], *arguments: Any, default: Any = None) -> Any:
    """Call a function of NVML; return the default where the driver refuses or lacks the function."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return default
