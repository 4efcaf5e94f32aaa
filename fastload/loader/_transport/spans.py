"""Spans: the memory ranges that a batch's tensors and arrays refer to, and how each is transferred."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.loader._transport.slots import Slot, Slots

# Up to this size, a copy through the queue is cheaper than a slot (3 µs to take and free one, measured), and
# labels, which are often kept, occupy no slots.
INLINE_BYTES = 4096

# The largest alignment of tensor elements (complex128); spans begin at a multiple of it.
_ALIGNMENT = 16

# A span in a serialized batch: a slot's (flag, offset, size) or (flag, offset, size, low), (bytes, low), or
# (byte tensor, low), where `low` is the offset of its first byte in the tensor's storage.
Span = tuple[Any, ...]


class Spans:
    """The spans of a batch, collected while it is pickled.

    `placed` has the slot and size of each tensor of the batch that was allocated in a slot, by address.

    Attributes:
        references: The span number of each tensor and array, in the order of the pickle.
        slots: The slots in use.
    """

    def __init__(self, slots: Slots, placed: dict[int, tuple[Slot, int]]) -> None:
        self._free_slots = slots
        self._placed = placed
        self.clear()

    def clear(self) -> None:
        self._numbers: dict[int, int] = {}
        self._spans: list[_Storage | Span] = []
        self._next_reference: int | None = None
        # These references keep the slots from being taken again until the batch is handed over.
        self._copies: list[NDArray[np.uint8]] = []
        self.references: list[int] = []
        self.slots: list[Slot] = []

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
        # Not by address: two storages may begin at the same address and differ in size.
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
            span = self.copy(memory) if memory.size > INLINE_BYTES and not raw.readonly else None
            if span is None:
                return True
            self._next_reference = len(self._spans)
            self._spans.append(span)
        self.references.append(self._next_reference)
        self._next_reference = None
        return False

    def copy(self, memory: NDArray[np.uint8]) -> Span | None:
        """Copy bytes into a slot; return None if there is no free one."""
        taken = self._free_slots.take(memory.size)
        if taken is None:
            return None
        slot, array = taken
        array[:] = memory
        self.slots.append(slot)
        self._copies.append(array)
        return slot.flag, slot.offset, memory.size

    def describe(self) -> list[Span]:
        """Return the descriptions of all spans, moved to where they are transferred."""
        return [self._moved(span) if isinstance(span, _Storage) else span for span in self._spans]

    def _moved(self, span: _Storage) -> Span:
        placed = self._placed.get(span.storage.data_ptr())
        if placed is not None:
            slot, size = placed
            self.slots.append(slot)
            return slot.flag, slot.offset, size, 0
        low = span.low - span.low % _ALIGNMENT
        content = torch.empty(0, dtype=torch.uint8, device="cpu").set_(
            span.storage, low, (span.high - low,), (1,)
        )
        memory = content.numpy()
        if memory.size <= INLINE_BYTES:
            return memory.tobytes(), low
        copied = self.copy(memory)
        return (content, low) if copied is None else (*copied, low)


@dataclass(slots=True)
class _Storage:
    """The part of a storage, in bytes, that a batch's tensors refer to."""

    storage: torch.UntypedStorage
    low: int
    high: int
