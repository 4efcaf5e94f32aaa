"""How busy the GPU is while the training runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch

from fastload.system.gpus import Gpu, reading

_EACH_S = 0.25


class Reading(NamedTuple):
    """What the GPUs said at a moment: `at` is in seconds, of `time.perf_counter`."""

    at: float
    gpus: tuple[Gpu, ...]


class GpuWatch:
    """Asks NVML four times a second how busy the GPUs are; without NVML, or without a GPU, nothing.

    Args:
        session: Opens what reads the GPUs.
        each_s: From one reading to the next, in seconds.
    """

    def __init__(
        self,
        session: Callable[[], AbstractContextManager[Callable[[], tuple[Gpu, ...]]]] = reading,
        each_s: float = _EACH_S,
    ) -> None:
        self._session = session
        self._each_s = each_s
        self._readings: list[Reading] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastload-doctor-gpu", daemon=True)

    def busy(self, span: tuple[float, float], uuid: str) -> tuple[float, ...]:
        """How busy the training's GPU was, 0 to 1, at even times; empty where none was used.

        Args:
            span: From when until when, by `time.perf_counter`: that of the training's batches.
            uuid: The GPU's; "": the busiest one is taken.
        """
        return busy_of(self._readings, span, uuid)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches until it ends."""
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
                self._readings.append(Reading(time.perf_counter(), read()))


def busy_of(readings: Sequence[Reading], span: tuple[float, float], uuid: str) -> tuple[float, ...]:
    """How busy a GPU was, 0 to 1, at each reading of a span; empty where none was used.

    Args:
        readings: Of all GPUs.
        span: From when until when.
        uuid: The GPU's; the busiest is taken where no GPU has it.
    """
    by_gpu: dict[str, list[float]] = {}
    for at, gpus in readings:
        if span[0] <= at <= span[1]:
            for gpu in gpus:
                by_gpu.setdefault(gpu.uuid or str(gpu.index), []).append(gpu.utilization or 0.0)
    if not by_gpu:
        return ()
    busy = by_gpu.get(uuid) or max(by_gpu.values(), key=lambda each: sum(each) / len(each))
    # A GPU that nobody used says nothing about this training.
    return tuple(busy) if sum(busy) / len(busy) > 0.01 else ()


def uuid_of(device: torch.device | None) -> str:
    """The uuid of the GPU that the training uses, as NVML writes it; "" where that is not known.

    Args:
        device: That of the model; where it is none of CUDA's, torch's current one is taken.
    """
    with contextlib.suppress(Exception):
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            is_named = device is not None and device.type == "cuda"
            return f"GPU-{torch.cuda.get_device_properties(device if is_named else None).uuid}"
    return ""
