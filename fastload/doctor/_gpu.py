"""GPU utilisation during a training, by NVML."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fastload.system.gpus import gpu_reader

_EACH_S = 0.25


class GpuWatch:
    """Readings of NVML four times a second; none without NVML or without a GPU."""

    def __init__(self, session: Callable[[], Any] = gpu_reader, each_s: float = _EACH_S) -> None:
        self._session = session
        self._each_s = each_s
        self._readings: list[tuple[float, Any]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastload-doctor-gpu", daemon=True)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Read until it ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()

    def _watch(self) -> None:
        with self._session() as read:
            is_there = bool(read())
            while is_there and not self._stopping.wait(self._each_s):
                self._readings.append((time.perf_counter(), read()))

    def busy(self, span: tuple[float, float], uuid: str) -> tuple[float, ...]:
        """Return the utilisation (0 to 1) of a GPU at each reading of a span of `time.perf_counter`."""
        return tuple(
            gpu.utilization or 0.0
            for at, gpus in self._readings
            for gpu in gpus
            if span[0] <= at <= span[1] and uuid and gpu.uuid == uuid
        )


def uuid_of(device: torch.device | None) -> str:
    """Return the uuid of the training's GPU as NVML writes it; "" without one."""
    with contextlib.suppress(Exception):
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            is_named = device is not None and device.type == "cuda"
            return f"GPU-{torch.cuda.get_device_properties(device if is_named else None).uuid}"
    return ""
