"""Network of a given speed that processes share."""

from __future__ import annotations

import ctypes
import time
from multiprocessing.context import SpawnContext

_PIECE_BYTES = 16 * 1024  # a turn at the bucket, so that all that download at once have equal parts
_BURST_S = 0.02  # what an idle bucket saves up: more than a sleep is late


class TokenBucket:
    """A network of a given speed, shared by processes: a transfer ends when its bytes have had their turn."""

    def __init__(self, context: SpawnContext) -> None:
        self._free = context.Value(ctypes.c_double, 0.0)

    def transfer(self, size: float, bytes_per_s: float) -> None:
        while size > 0:
            piece = min(size, _PIECE_BYTES)
            size -= piece
            with self._free:
                end = max(time.monotonic() - _BURST_S, self._free.value) + piece / bytes_per_s
                self._free.value = end
            time.sleep(max(0.0, end - time.monotonic()))
