"""NVIDIA's GPUs, as the driver's own library tells them (NVML), without starting CUDA.

NVML counts every GPU of the machine, in the order of the PCI bus. CUDA, and so torch, shows only those
that `CUDA_VISIBLE_DEVICES` names, renumbered, and by default the fastest first: the uuid tells which is
which. Reference: NVML API Reference Guide.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"

# nvml.h: NVML_SUCCESS, NVML_DEVICE_NAME_V2_BUFFER_SIZE and NVML_DEVICE_UUID_V2_BUFFER_SIZE.
_SUCCESS = 0
_TEXT_BYTES = 96


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        index: Its number in NVML's order, which need not be torch's.
        name: Its model.
        memory_bytes: How much memory it has; 0 where the driver does not tell.
        used_bytes: How much of that is taken, by whichever process.
        utilization: The share of the last moments (up to a second) in which it computed anything, 0 to 1;
            None where the driver does not tell.
        uuid: "GPU-…", the same in every process; "" where the driver does not tell.
    """

    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    utilization: float | None
    uuid: str = ""


def gpus(library: str = _LIBRARY) -> tuple[Gpu, ...]:
    """Reads the machine's NVIDIA GPUs: none where there is no driver. Never raises.

    Args:
        library: The name of the driver's library.
    """
    nvml = _loaded(library)
    if nvml is None:
        return ()
    try:
        return gpus_of(nvml)
    except AttributeError:  # A driver older than one of the functions.
        return ()


def gpus_of(nvml: Any) -> tuple[Gpu, ...]:
    """Reads the GPUs that a library with NVML's functions tells; none where it refuses.

    Args:
        nvml: The library: what `ctypes.CDLL` gives.
    """
    with opened(nvml) as read:
        return read()


@contextlib.contextmanager
def reading(library: str = _LIBRARY) -> Iterator[Callable[[], tuple[Gpu, ...]]]:
    """Keeps NVML open for many readings: opening it takes much longer than a reading.

    Args:
        library: The name of the driver's library.

    Returns:
        What reads the GPUs: none where there is no driver. It never raises.
    """
    nvml = _loaded(library)
    try:
        session = contextlib.ExitStack()
        read = None if nvml is None else session.enter_context(opened(nvml))
    except AttributeError:  # A driver older than one of the functions.
        read = None
    with session:
        yield functools.partial(_read_or_none, read)


def _read_or_none(read: Callable[[], tuple[Gpu, ...]] | None) -> tuple[Gpu, ...]:
    try:
        return () if read is None else read()
    except AttributeError:
        return ()


@contextlib.contextmanager
def opened(nvml: Any) -> Iterator[Callable[[], tuple[Gpu, ...]]]:
    """Opens NVML, gives what reads the GPUs, and closes it again.

    Args:
        nvml: The library: what `ctypes.CDLL` gives.
    """
    # In pairs, as NVML counts them: nothing stays open behind it.
    if nvml.nvmlInit_v2() != _SUCCESS:
        yield tuple
        return
    try:
        yield lambda: _all_gpus(nvml)
    finally:
        nvml.nvmlShutdown()


def _all_gpus(nvml: Any) -> tuple[Gpu, ...]:
    import ctypes

    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
        return ()
    found = (_gpu(nvml, index) for index in range(count.value))
    return tuple(gpu for gpu in found if gpu is not None)


def _gpu(nvml: Any, index: int) -> Gpu | None:
    import ctypes

    device = ctypes.c_void_p()
    # One that fell off the bus is left out, the others are told.
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != _SUCCESS:
        return None
    name = _text(nvml.nvmlDeviceGetName, device) or "GPU"
    memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used.
    if nvml.nvmlDeviceGetMemoryInfo(device, memory) != _SUCCESS:
        memory = (ctypes.c_ulonglong * 3)()
    rates = (ctypes.c_uint * 2)()  # nvmlUtilization_t: of the GPU and of its memory, per cent.
    is_told = nvml.nvmlDeviceGetUtilizationRates(device, rates) == _SUCCESS
    return Gpu(
        index,
        name,
        memory[0],
        memory[2],
        rates[0] / 100 if is_told else None,
        _text(nvml.nvmlDeviceGetUUID, device),
    )


def _text(ask: Any, device: Any) -> str:
    """What a function that fills a buffer says of a device; "" where it refuses."""
    import ctypes

    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    refused = ask(device, buffer, ctypes.c_uint(_TEXT_BYTES)) != _SUCCESS
    return "" if refused else buffer.value.decode(errors="replace")


@functools.cache
def _loaded(library: str) -> Any:
    """Loads NVML, once; None where there is none."""
    import ctypes

    try:
        return ctypes.CDLL(library)
    except OSError:
        return None
