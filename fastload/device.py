"""Batches on their way to an accelerator: copied ahead, from the memory that the workers wrote.

With CUDA the slots are page-locked once (cudaHostRegister), so the copy engine reads them directly. Copies
run on a stream of their own, while the model works on earlier batches. A batch is handed out with two
promises kept: the stream that uses it waits for its copy, and its memory is not given to another tensor
before that stream is through with it (`record_stream`). A slot is held until it has been read.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from typing import Any, NamedTuple

import torch

from fastload.errors import OptionError

# One batch being copied while one waits: more would only fill the device's memory.
_BATCHES_AHEAD = 2

_PAGE_BYTES = 4096


def resolve_device(device: Any) -> torch.device | None:
    """The device that batches are to be moved to; None where they stay in the CPU's memory.

    Where the device asked for is not there, as on a machine without a GPU, they stay as well, and a warning
    says so, as torch does for `pin_memory`.

    Raises:
        OptionError: It is no device.
    """
    if device is None:
        return None
    try:
        wanted = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f'device must be a torch device such as "cuda", got {device!r}') from error
    if wanted.type in ("cpu", "meta"):
        return None
    module = getattr(torch, wanted.type, None)
    if module is None or not module.is_available():
        warnings.warn(
            f"device={str(wanted)!r} was asked for and is not available here: batches stay on the CPU",
            stacklevel=3,
        )
        return None
    return wanted


def moved(data: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A batch with every tensor replaced by what `move` makes of it.

    Looked into are mappings, lists, tuples, named tuples and dataclasses. An object of another kind that
    has a method `to` is a batch class of the user's, and is left to them, as is everything else.
    """
    if isinstance(data, torch.Tensor):
        return move(data)
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        items = {key: moved(value, move) for key, value in data.items()}
        if type(data) is dict or not isinstance(data, MutableMapping):
            return items
        mapping = copy.copy(data)
        mapping.update(items)
        return mapping
    if isinstance(data, tuple):
        values = [moved(value, move) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else tuple(values)
    if isinstance(data, MutableSequence) and not isinstance(data, bytearray):
        sequence = copy.copy(data)
        for index, value in enumerate(data):
            sequence[index] = moved(value, move)
        return sequence
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        record = copy.copy(data)
        for field in dataclasses.fields(data):
            object.__setattr__(record, field.name, moved(getattr(data, field.name), move))
        return record
    return data


class Arrival(NamedTuple):
    """What the loader's iterator got: a batch, or the error or the end that came in its place.

    Attributes:
        mark: Where in the epoch it stands.
        batch: The batch.
        error: What to raise.
    """

    mark: Any
    batch: Any = None
    error: BaseException | None = None


class _Copy(NamedTuple):
    arrival: Arrival
    event: Any


class CopiesAhead:
    """Copies batches to a CUDA device before they are asked for.

    Args:
        device: The device.
        fetch: Gets the next batch from the workers, waiting for it.
        is_ready: Whether `fetch` would return at once.
        base: An object that keeps the slots' memory mapped.
    """

    def __init__(
        self,
        device: torch.device,
        fetch: Callable[[], Arrival],
        is_ready: Callable[[], bool],
        base: Any,
    ) -> None:
        self._device = device
        self._fetch = fetch
        self._is_ready = is_ready
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._locked = _PageLocked(base)
        self._copies: deque[_Copy] = deque()
        # Host batches whose copy has been issued and may not have been carried out.
        self._being_read: deque[tuple[Any, Any]] = deque()

    def next(self) -> Arrival:
        """The next batch, on the device, safe to use on the current stream."""
        while self._being_read and self._being_read[0][0].query():
            self._being_read.popleft()
        if not self._copies:
            self._start_copy()
        arrival, event = self._copies.popleft()
        while arrival.error is None and len(self._copies) < _BATCHES_AHEAD and self._may_go_on():
            self._start_copy()
        if event is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)
            moved(arrival.batch, lambda tensor: _recorded(tensor, current))
        return arrival

    def _may_go_on(self) -> bool:
        last = self._copies[-1].arrival if self._copies else None
        return (last is None or last.error is None) and self._is_ready()

    def _start_copy(self) -> None:
        arrival = self._fetch()
        if arrival.error is not None:
            self._copies.append(_Copy(arrival, None))
            return
        with torch.cuda.stream(self._stream):
            batch = moved(arrival.batch, self._copied)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        self._being_read.append((event, arrival.batch))
        self._copies.append(_Copy(arrival._replace(batch=batch), event))

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            return tensor
        self._locked.add(tensor)
        return tensor.to(self._device, non_blocking=True)

    def __del__(self) -> None:
        # Neither the slots nor their page locks may go while the copy engine reads them.
        if self._being_read:
            self._stream.synchronize()
            self._being_read.clear()


class _PageLocked:
    """The pages of shared memory that CUDA has been told never to move.

    Args:
        base: What maps them; None: there are none.
    """

    def __init__(self, base: Any) -> None:
        self._base = base
        self._sizes: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Locks the slot that a tensor lies in, unless that has been done."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        size = -(-storage.nbytes() // _PAGE_BYTES) * _PAGE_BYTES
        if self._base is None or not self._base.contains(start) or self._sizes.get(start, 0) >= size:
            return
        runtime = _runtime()
        if start in self._sizes:
            runtime.cudaHostUnregister(start)
        # Where the system refuses (ulimit -l), the copy works all the same, only not ahead.
        if int(runtime.cudaHostRegister(start, size, 0)) == 0:
            self._sizes[start] = size

    def __del__(self) -> None:
        for start in self._sizes:
            _runtime().cudaHostUnregister(start)


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _recorded(tensor: torch.Tensor, stream: Any) -> torch.Tensor:
    if tensor.device.type == "cuda":
        tensor.record_stream(stream)
    return tensor
