"""Parcels: a batch as its worker sends it, a pickle whose tensors and arrays lie in slots.

The pickle holds the batch's structure, whatever that is, and refers to spans: stretches of the storages
that its tensors look at. A storage that two tensors share is one span, so they share it on arrival; sizes
and strides are those that the worker made. A small span travels inside the parcel, a large one in a slot,
and one for which there is no slot as torch's own shared memory. What is no plain tensor in CPU memory is
pickled as torch pickles it.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from threading import get_ident
from typing import Any

import numpy as np
import torch

from fastload.loader.transport import forks
from fastload.loader.transport.memory import Arena
from fastload.loader.transport.slots import Slot, Slots
from fastload.loader.transport.spans import INLINE_BYTES, Span, Spans

# A pipe holds 64 KiB before it has to be emptied; a pickle that is larger than half of it takes a slot.
_INLINE_PICKLE_BYTES = 32768

_OUT_OF_BAND = bytearray(1)


class Packer:
    """Puts a worker's batches into its slots, one after another.

    Args:
        arena: The memory that it shares with the training process.
        section: The worker's number.
        finishes_on_device: See `fastload.datasets.batch.BatchMemory`.
    """

    def __init__(self, arena: Arena, section: int, finishes_on_device: bool = False) -> None:
        self.finishes_on_device = finishes_on_device
        self._token = arena.token
        self._slots = Slots(arena, section)
        self._placed: dict[int, tuple[Slot, int]] = {}
        self._spans = Spans(self._slots, self._placed)
        # One for all batches: making one takes 2 µs, which is what a batch of strings would be slower by.
        self._file = io.BytesIO()
        self._pickler = _Pickler(self._file, self._spans)
        self._thread = get_ident()
        self._is_open = False

    def begin(self) -> None:
        """Starts a batch: from here to `pack`, or `end`, this thread's tensors may be made in slots."""
        self._placed.clear()
        self._is_open = True

    def end(self) -> None:
        """Ends a batch."""
        self._is_open = False

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised, contiguous tensor for the batch, in a slot where it can be."""
        tensor = self.empty_or_none(shape, dtype)
        return torch.empty(tuple(shape), dtype=dtype, device="cpu") if tensor is None else tensor

    def empty_or_none(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """As `empty`; None where there is no slot for it, or this thread is making no batch."""
        if not self._is_open or get_ident() != self._thread:
            return None
        size = math.prod(shape) * dtype.itemsize
        if size <= INLINE_BYTES:
            return torch.empty(tuple(shape), dtype=dtype, device="cpu")
        taken = self._slots.take(size)
        if taken is None:
            return None
        slot, array = taken
        storage = torch.from_numpy(array).untyped_storage()
        self._placed[storage.data_ptr()] = slot, size
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage).view(tuple(shape))

    def pack(self, batch: Any) -> Parcel:
        """The parcel of a batch. What it holds in slots is the training process's from now on."""
        spans = self._spans
        try:
            self._pickler.dump(batch)
            described = spans.describe()
            pickled = self._file.getvalue()
            content: bytes | Span | None = None
            if len(pickled) > _INLINE_PICKLE_BYTES:
                content = spans.copy(np.frombuffer(pickled, np.uint8))
            for slot in spans.slots:
                self._slots.hand_over(slot)
            if content is None and not described:
                return Parcel(pickle.loads, pickled)
            return Parcel(_receive, self._token, content or pickled, spans.references, described)
        finally:
            spans.clear()
            self._pickler.clear_memo()
            self._file.seek(0)
            self._file.truncate()


class Parcel:
    """What a worker puts into the queue. Unpickled in the training process, it is the batch."""

    __slots__ = ("_arguments", "_receive")

    def __init__(self, receive: Callable[..., Any], *arguments: Any) -> None:
        self._receive = receive
        self._arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._receive, self._arguments


def is_plain(tensor: Any) -> bool:
    """Whether something is a tensor of numbers in CPU memory and nothing besides."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not (
            tensor.requires_grad
            or tensor.is_nested
            or tensor.is_quantized
            or tensor.is_conj()
            or tensor.is_neg()
        )
    )


class _Pickler(ForkingPickler):
    """Pickles as torch's queues do, with plain tensors and arrays left to spans."""

    def __init__(self, file: io.BytesIO, spans: Spans) -> None:
        super().__init__(file, 5, True, spans.add_buffer)
        self._spans = spans

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor:
            return self._reduced_tensor(value)
        if type(value) is np.ndarray and not (value.flags.writeable and value.dtype.isnative):
            # Protocol 5 keeps it read-only, or in the other byte order; torch's queue, which takes Python's
            # usual protocol, does so from Python 3.14 on.
            return value.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        return NotImplemented

    def _reduced_tensor(self, tensor: torch.Tensor) -> Any:
        # What is in torch's shared memory already needs no copy, and whoever put it there may count
        # on all processes' seeing the same.
        if not is_plain(tensor) or tensor.untyped_storage().is_shared():
            return NotImplemented
        shape, strides = tuple(tensor.shape), tensor.stride()
        if tensor.numel() == 0:
            return _empty, (tensor.dtype, shape, strides)
        offset = self._spans.add_tensor(tensor)
        return _tensor, (pickle.PickleBuffer(_OUT_OF_BAND), tensor.dtype, offset, shape, strides)


def _receive(token: int, content: bytes | Span, references: list[int], described: list[Span]) -> Any:
    """Unpickles a parcel: opens its spans, and builds the batch upon them."""
    forks.settle()
    arena = Arena.named(token)
    spans = [_opened(arena, span) for span in described]
    pickled: Any = content if isinstance(content, bytes) else arena.hold(*content)
    return pickle.loads(pickled, buffers=[spans[number] for number in references])


def _opened(arena: Arena, span: Span) -> Any:
    """What lies in a span: an array's memory, or a tensors' storage and where in it the span began."""
    first, *rest = span
    if isinstance(first, int):
        array = arena.hold(*span[:3])
        return array if len(span) == 3 else (torch.from_numpy(array).untyped_storage(), span[3])
    content = torch.frombuffer(bytearray(first), dtype=torch.uint8) if isinstance(first, bytes) else first
    return content.untyped_storage(), rest[0] - content.storage_offset()


def _tensor(
    span: tuple[torch.UntypedStorage, int],
    dtype: torch.dtype,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> torch.Tensor:
    """A tensor that begins `offset` bytes into the storage of which the span is a part."""
    storage, low = span
    empty = torch.empty(0, dtype=dtype, device="cpu")
    return empty.set_(storage, (offset - low) // dtype.itemsize, shape, strides)


def _empty(dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
