"""How busy the GPU is while the training runs."""

from __future__ import annotations

import threading

from fastload.machine import gpus

_EACH_S = 0.25


class GpuWatch:
    """Asks NVML four times a second how busy the GPUs are; without NVML, or without a GPU, nothing.

    Attributes:
        busy: The mean over all GPUs that were busy at all, 0 to 1, at even times.
    """

    def __init__(self) -> None:
        self._readings: list[tuple[float, ...]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fastload-doctor-gpu", daemon=True)

    @property
    def busy(self) -> tuple[float, ...]:
        """How busy the busiest GPU was, 0 to 1, at even times; empty where none was used."""
        if not self._readings:
            return ()
        means = [sum(column) / len(self._readings) for column in zip(*self._readings, strict=True)]
        place = max(range(len(means)), key=means.__getitem__)
        # A GPU that nobody used says nothing about this training.
        return tuple(reading[place] for reading in self._readings) if means[place] > 0.01 else ()

    def start(self) -> None:
        """Begins to ask, if there is a GPU."""
        if gpus():
            self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(_EACH_S):
            reading = tuple(gpu.utilization or 0.0 for gpu in gpus())
            if reading and (not self._readings or len(reading) == len(self._readings[0])):
                self._readings.append(reading)
