"""Batches on an accelerator: copied in advance, from the memory that the workers wrote.

With CUDA, the slots are page-locked once (cudaHostRegister), so that the copy engine reads them directly.
Copies run on their own stream while the model works on earlier batches. A batch that is handed out is safe to
use: the current stream waits for its copy, and the batch's memory is reused only after that stream has
finished with it (`record_stream`). A slot is held until it has been read.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import warnings
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from typing import Any, NamedTuple

import torch

from fastload.errors import OptionError
from fastload.loader.resume.progress import Position
from fastload.loader.transport.memory import Arena

# One batch is copied while another waits: more would only fill the device's memory.
_BATCHES_AHEAD = 2

_PAGE_BYTES = 4096


def resolve_device(device: torch.device | str | int | None) -> torch.device | None:
    """Return the device that batches are moved to; None if they stay in the CPU's memory.

    They also stay there, with a warning, if the machine lacks the device, as in torch for `pin_memory`. A
    value that names no device, or one beyond the last, raises OptionError.
    """
    if device is None:
        return None
    try:
        # torch accepts a bare number only if there is an accelerator.
        wanted = torch.device("cuda", device) if type(device) is int else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(
            f'device must be one that torch knows, such as "cuda" or "cuda:1", or None, got {device!r}'
        ) from error
    if wanted.type == "cpu":
        return None
    # A CUDA build names its accelerator even on a machine without one.
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or accelerator.type != wanted.type:
        warnings.warn(
            f"device={str(wanted)!r} is not available on this machine: batches stay on the CPU", stacklevel=3
        )
        return None
    count = torch.accelerator.device_count()
    if wanted.index is not None and wanted.index >= count:
        raise OptionError(f"device must be one of the {count} {wanted.type} devices here, got {wanted}")
    return wanted


def moved(
    data: object,
    move: Callable[[torch.Tensor], torch.Tensor],
    move_object: Callable[[Any], object] = lambda data: data,
) -> object:
    """Return a batch with each tensor replaced by `move(tensor)`.

    Tensors are found in mappings, lists, tuples, named tuples and dataclasses. Other objects with a method
    `to`, such as a PackedSequence, are replaced by `move_object`.
    """
    if isinstance(data, torch.Tensor):
        return move(data)
    if isinstance(data, str | bytes | bytearray):
        return data
    if callable(getattr(data, "to", None)):
        return move_object(data)
    again = functools.partial(moved, move=move, move_object=move_object)
    if isinstance(data, Mapping):
        is_plain = type(data) is dict or not isinstance(data, MutableMapping)
        mapping: Any = {} if is_plain else copy.copy(data)
        for key, value in data.items():
            mapping[key] = again(value)
        return mapping
    if isinstance(data, tuple):
        values: list[Any] = [again(value) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else tuple(values)
    if isinstance(data, MutableSequence):
        sequence = copy.copy(data)
        for index, value in enumerate(data):
            sequence[index] = again(value)
        return sequence
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        record = copy.copy(data)
        for field in dataclasses.fields(data):
            object.__setattr__(record, field.name, again(getattr(data, field.name)))
        return record
    return data


def moved_to(data: object, device: torch.device) -> object:
    """Return a batch with everything that can be moved on the device."""
    return moved(data, lambda tensor: tensor.to(device, non_blocking=True), lambda batch: batch.to(device))


class Arrival(NamedTuple):
    """A batch from the workers and its position in the epoch, or the error or end in its place."""

    position: Position
    batch: object = None
    error: BaseException | None = None


class CopiesAhead:
    """Copies batches to a CUDA device before they are requested.

    `fetch` waits for the workers' next batch; `is_ready` returns whether it is there already.
    """

    def __init__(
        self,
        device: torch.device,
        fetch: Callable[[], Arrival],
        is_ready: Callable[[], bool],
        arena: Arena | None,
    ) -> None:
        self._process = os.getpid()
        # Source tensors of copies that may still be running, and the event after each copy.
        self._being_read: deque[tuple[torch.cuda.Event, list[torch.Tensor]]] = deque()
        # Batches on the device with the event after their copy; None for an error.
        self._copies: deque[tuple[Arrival, torch.cuda.Event | None]] = deque()
        # A batch that has been fetched but could not be copied yet.
        self._uncopied: Arrival | None = None
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._device = device
        self._fetch = fetch
        self._is_ready = is_ready
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._locked = _PageLockedSlots(arena, device)

    def next(self) -> Arrival:
        """Return the next batch, on the device, safe to use on the current stream."""
        while self._being_read and self._being_read[0][0].query():  # type: ignore[no-untyped-call]
            self._being_read.popleft()
        if not self._copies:
            self._start_copy()
        arrival, event = self._copies.popleft()
        if event is None:
            return arrival
        self._copy_ahead()
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        batch = moved(
            arrival.batch, lambda tensor: _recorded(tensor, current), lambda batch: batch.to(self._device)
        )
        return arrival._replace(batch=batch)

    def restart(self) -> None:
        """Discard fetched batches, because another epoch begins."""
        self._copies.clear()
        self._uncopied = None

    def _copy_ahead(self) -> None:
        """Start copies of batches that have arrived, while the device has room for them."""
        while len(self._copies) < _BATCHES_AHEAD:
            if self._copies and self._copies[-1][1] is None:
                return  # an error, or the end
            if self._uncopied is None and not self._is_ready():
                return
            try:
                self._start_copy()
            except RuntimeError:
                return  # out of memory: retried when the batch is requested, and raised then

    def _start_copy(self) -> None:
        arrival = self._uncopied = self._uncopied or self._fetch()
        self._copies.append((arrival, None) if arrival.error is not None else self._copy(arrival))
        self._uncopied = None

    def _copy(self, arrival: Arrival) -> tuple[Arrival, torch.cuda.Event]:
        sources: list[torch.Tensor] = []

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device.type != "cpu":
                return tensor
            self._locked.add(tensor)
            sources.append(tensor)
            return tensor.to(self._device, non_blocking=True)

        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        try:
            with torch.cuda.stream(self._stream):
                batch = moved(arrival.batch, copied)
        finally:
            event.record(self._stream)
            self._being_read.append((event, sources))
        return arrival._replace(batch=batch), event

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # Slots and their page locks must outlive the copy engine's reads. A forked child has no such reads.
        if self._being_read and getpid() == self._process:
            self._stream.synchronize()


class _PageLockedSlots:
    """The slots that CUDA has page-locked."""

    def __init__(self, arena: Arena | None, device: torch.device) -> None:
        self._process = os.getpid()
        self._sizes: dict[int, int] = {}
        self._arena = arena
        self._device = device

    def add(self, tensor: torch.Tensor) -> None:
        """Lock the slot of a tensor, unless it is locked."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        size = -(-storage.nbytes() // _PAGE_BYTES) * _PAGE_BYTES
        if self._arena is None or not self._arena.contains(start) or self._sizes.get(start, 0) >= size:
            return
        if self._sizes.pop(start, None) is not None:
            _runtime().cudaHostUnregister(start)
        if int(_runtime().cudaHostRegister(start, size, 0)) == 0:
            self._sizes[start] = size
            return
        # The system refuses (ulimit -l): copies still work, but not in advance. CUDA keeps the refusal as its
        # last error, which the next kernel launch reports: let that be this one.
        self._arena = None
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device)

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self._sizes and getpid() == self._process:
            for start in self._sizes:
                _runtime().cudaHostUnregister(start)


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _recorded(tensor: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    if tensor.device.type == "cuda":
        tensor.record_stream(stream)
    return tensor
