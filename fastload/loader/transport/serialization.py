"""Serialized batches: pickles whose tensors and arrays are in slots.

The pickle holds the structure of the batch, of any kind, and refers to spans: the parts of storages that its
tensors use. Sizes and strides are preserved, and tensors that shared a storage still share it. A small span
is sent inside the serialized batch, a large one in a slot or, if none is free, in torch's shared memory.
Anything but plain CPU tensors is pickled in torch's own way.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from threading import get_ident
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.loader.transport.memory import Arena, Slot, Slots

# A pipe holds 64 KiB before the reader has to empty it; a pickle larger than half of that takes a slot.
_INLINE_PICKLE_BYTES = 32768

_OUT_OF_BAND = bytearray(1)

# Up to this size, a copy through the queue is cheaper than a slot (3 µs to take and free one, measured), and
# labels, which are often held for long, occupy no slots.
_INLINE_BYTES = 4096

# The largest alignment of tensor elements (complex128); spans begin at a multiple of it.
_ALIGNMENT = 16

# A span in a serialized batch: a slot's (flag, offset, size) or (flag, offset, size, low), (bytes, low), or
# (byte tensor, low), where `low` is the offset of its first byte in the tensor's storage.
Span = tuple[Any, ...]


class BatchSerializer:
    """Serializes the batches of the worker with number `section`; also the memory that they are made in.

    See `fastload.contracts.BatchMemory`.
    """

    def __init__(self, arena: Arena, section: int, finishes_on_device: bool = False) -> None:
        self.finishes_on_device = finishes_on_device
        self._token = arena.token
        self._slots = Slots(arena, section)
        # The slot and size of each tensor of the batch that was allocated in a slot, by address.
        self._placed: dict[int, tuple[Slot, int]] = {}
        # One pickler for all batches: creating one takes 2 µs, which would slow down batches of strings.
        self._file = io.BytesIO()
        self._pickler = _Pickler(self._file, self)
        self._thread = get_ident()
        self._is_open = False
        self._clear()

    def _clear(self) -> None:
        self._spans: list[_Storage | Span] = []
        # The number of each storage's span, and that of each tensor and array in the order of the pickle.
        self._numbers: dict[int, int] = {}
        self._references: list[int] = []
        self._next_reference: int | None = None
        self._used: list[Slot] = []
        # These references keep the slots from being taken again until the batch is handed over.
        self._copies: list[NDArray[np.uint8]] = []

    def begin(self) -> None:
        """Start a batch: until `serialize` or `end`, tensors of this thread may be allocated in slots."""
        self._placed.clear()
        self._is_open = True

    def end(self) -> None:
        """Stop accepting tensors."""
        self._is_open = False

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialised, contiguous tensor for the batch, in a slot if possible."""
        tensor = self.empty_or_none(shape, dtype)
        return torch.empty(tuple(shape), dtype=dtype, device="cpu") if tensor is None else tensor

    def empty_or_none(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """Return a tensor as `empty` does; None if no slot is free or this thread is not making a batch."""
        if not self._is_open or get_ident() != self._thread:
            return None
        size = math.prod(shape) * dtype.itemsize
        if size <= _INLINE_BYTES:
            return torch.empty(tuple(shape), dtype=dtype, device="cpu")
        taken = self._slots.take(size)
        if taken is None:
            return None
        slot, array = taken
        storage = torch.from_numpy(array).untyped_storage()
        self._placed[storage.data_ptr()] = slot, size
        return torch.empty(0, dtype=dtype, device="cpu").set_(storage).view(tuple(shape))

    def serialize(self, batch: object) -> SerializedBatch:
        """Return the serialized batch; its slots belong to the training process from now on."""
        try:
            self._pickler.dump(batch)
            spans = [self._moved(span) if isinstance(span, _Storage) else span for span in self._spans]
            pickled = self._file.getvalue()
            content: bytes | Span | None = None
            if len(pickled) > _INLINE_PICKLE_BYTES:
                content = self._copied(np.frombuffer(pickled, np.uint8))
            for slot in self._used:
                self._slots.hand_over(slot)
            if content is None and not spans:
                return SerializedBatch(pickle.loads, pickled)
            return SerializedBatch(_receive, self._token, content or pickled, self._references, spans)
        finally:
            self._clear()
            self._pickler.clear_memo()
            self._file.seek(0)
            self._file.truncate()

    def add_tensor(self, tensor: torch.Tensor) -> int:
        """Add the memory of a tensor; return its offset in its storage, in bytes."""
        storage = tensor.untyped_storage()
        item = tensor.element_size()
        low = int(tensor.storage_offset()) * item
        if tensor.is_contiguous():
            high = low + tensor.numel() * item
        else:
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            high = low + (1 + sum((length - 1) * step for length, step in steps)) * item
        # Not its address: two storages may begin at the same one, and differ in size.
        number = self._numbers.setdefault(storage._cdata, len(self._spans))
        if number == len(self._spans):
            self._spans.append(_Storage(storage, low, high))
        else:
            span = self._spans[number]
            assert isinstance(span, _Storage)
            span.low, span.high = min(span.low, low), max(span.high, high)
        self._next_reference = number
        return low

    def add_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Add a tensor's marker or an array's memory; return whether the pickle has to contain it."""
        if self._next_reference is None:
            raw = buffer.raw()
            memory = np.frombuffer(raw, np.uint8)
            # Read-only memory stays in the pickle, as bytes: a slot would be writable.
            span = self._copied(memory) if memory.size > _INLINE_BYTES and not raw.readonly else None
            if span is None:
                return True
            self._next_reference = len(self._spans)
            self._spans.append(span)
        self._references.append(self._next_reference)
        self._next_reference = None
        return False

    def _copied(self, memory: NDArray[np.uint8]) -> Span | None:
        """Copy bytes into a slot; return None if there is no free one."""
        taken = self._slots.take(memory.size)
        if taken is None:
            return None
        slot, array = taken
        array[:] = memory
        self._used.append(slot)
        self._copies.append(array)
        return slot.flag, slot.offset, memory.size

    def _moved(self, span: _Storage) -> Span:
        placed = self._placed.get(span.storage.data_ptr())
        if placed is not None:
            slot, size = placed
            self._used.append(slot)
            return slot.flag, slot.offset, size, 0
        low = span.low - span.low % _ALIGNMENT
        content = torch.empty(0, dtype=torch.uint8, device="cpu").set_(
            span.storage, low, (span.high - low,), (1,)
        )
        memory = content.numpy()
        if memory.size <= _INLINE_BYTES:
            return memory.tobytes(), low
        copied = self._copied(memory)
        return (content, low) if copied is None else (*copied, low)


@dataclass(slots=True)
class _Storage:
    """The part of a storage, in bytes, that a batch's tensors refer to."""

    storage: torch.UntypedStorage
    low: int
    high: int


class SerializedBatch:
    """The object that a worker puts into the queue: it is unpickled as the batch."""

    __slots__ = ("_arguments", "_receive")

    def __init__(self, receive: Callable[..., object], *arguments: object) -> None:
        self._receive = receive
        self._arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._receive, self._arguments


def is_plain(tensor: object) -> bool:
    """Return whether a value is a dense CPU tensor without autograd or other special state."""
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
    """Pickler like that of torch's queues, but plain tensors and arrays become spans."""

    def __init__(self, file: io.BytesIO, serializer: BatchSerializer) -> None:
        super().__init__(file, 5, True, serializer.add_buffer)
        self._serializer = serializer

    def reducer_override(self, value: object) -> Any:
        if type(value) is torch.Tensor:
            return self._reduce_tensor(value)
        if type(value) is np.ndarray and not (value.flags.writeable and value.dtype.isnative):
            # Protocol 5 would keep it read-only, or in the foreign byte order; torch's queue uses Python's
            # default protocol, which does so only from Python 3.14 on.
            return value.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
        return NotImplemented

    def _reduce_tensor(self, tensor: torch.Tensor) -> object:
        # A tensor in torch's shared memory needs no copy, and users may rely on all processes seeing the
        # same memory.
        if not is_plain(tensor) or tensor.untyped_storage().is_shared():
            return NotImplemented
        shape, strides = tuple(tensor.shape), tensor.stride()
        if tensor.numel() == 0:
            return partial(torch.empty_strided, dtype=tensor.dtype, device="cpu"), (shape, strides)
        offset = self._serializer.add_tensor(tensor)
        return _tensor, (pickle.PickleBuffer(_OUT_OF_BAND), tensor.dtype, offset, shape, strides)


def _receive(token: int, content: bytes | Span, references: list[int], described: list[Span]) -> object:
    """Unpickle a serialized batch: map its spans, and build the batch on them."""
    arena = Arena.named(token)
    spans = [_open_span(arena, span) for span in described]
    pickled: Any = content if isinstance(content, bytes) else arena.hold(*content)
    return pickle.loads(pickled, buffers=[spans[number] for number in references])


def _open_span(arena: Arena, span: Span) -> NDArray[np.uint8] | tuple[torch.UntypedStorage, int]:
    """Return an array's memory, or a tensor's storage with the span's offset in the original storage."""
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
    """Return the tensor that begins `offset` bytes into the storage that the span is a part of."""
    storage, low = span
    empty = torch.empty(0, dtype=dtype, device="cpu")
    return empty.set_(storage, (offset - low) // dtype.itemsize, shape, strides)
