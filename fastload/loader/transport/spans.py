"""Spans: the stretches of memory that a batch's tensors and arrays look at, and how each travels."""

from __future__ import annotations

import os
import pickle
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef

from fastload.loader.transport.slots import Slot, Slots

# Up to here a copy through the queue is cheaper than a slot (3 µs for taking and freeing one, measured),
# and labels, which people keep, hold no slots.
INLINE_BYTES = 4096

# The largest alignment of a tensor's elements (complex128); a span begins at a multiple of it.
_ALIGNMENT = 16

# Sharing a storage torch's way takes 0.1 ms each time (measured), and copying so many bytes takes that too.
_REPEATED_BYTES = 1 << 20
_STORAGES_REMEMBERED = 8

# How many times over /dev/shm must have room for a storage: several workers ask at once, each with some
# batches ahead, and torch dies of a full one.
_ROOM = 16

# What a parcel says of a span: a slot's (flag, offset, size), (flag, offset, size, low), (bytes, low) or
# (tensor of bytes, low), where `low` is the place of its first byte in a tensors' storage.
Span = tuple[Any, ...]


class RepeatedStorages:
    """Tells large storages that are sent again and again, such as a ready tensor of a dataset's.

    Torch moves a storage into shared memory when it is sent first, and copies it no more. That is worth
    having where a dataset gives out the same one every time; where each is sent once, it is slower than a
    slot. So the first goes torch's way, to be there if it comes again, and then only what does come
    again. A storage that was written to in between is another one. Where /dev/shm, in which torch puts
    them, has little room, none goes there.
    """

    def __init__(self) -> None:
        self._last: deque[tuple[StorageWeakRef, int]] = deque(maxlen=_STORAGES_REMEMBERED)

    def note(self, storage: torch.UntypedStorage, version: int | None) -> bool:
        """Takes note of a storage that is sent. Returns whether it is to go torch's way."""
        if version is None or storage.nbytes() < _REPEATED_BYTES:
            return False
        # A weak reference keeps the address from being given to another storage.
        reference = StorageWeakRef(storage), version  # type: ignore[no-untyped-call]
        goes_torchs_way = not self._last or reference in self._last
        self._last.append(reference)
        return goes_torchs_way and _has_room(storage.nbytes())


def _has_room(size: int) -> bool:
    """Whether /dev/shm holds several times so many bytes: workers ask at the same time."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return False
    return room.f_bavail * room.f_frsize > _ROOM * size


class Spans:
    """The spans of a batch, collected while it is pickled.

    Args:
        slots: Where spans are copied to.
        placed: The slots, and their sizes, that tensors of the batch have been made in, by address.

    Attributes:
        references: For each tensor and array, in the pickle's order, the number of its span.
        slots: The slots that hold them.
    """

    def __init__(self, slots: Slots, placed: dict[int, tuple[Slot, int]]) -> None:
        self._free_slots = slots
        self._placed = placed
        self._repeated = RepeatedStorages()
        self.clear()

    def clear(self) -> None:
        """Begins another batch."""
        self._numbers: dict[int, int] = {}
        self._spans: list[_Storage | Span] = []
        self._next_reference: int | None = None
        # Referred to until the batch is handed over, which is what keeps their slots from being taken.
        self._copies: list[NDArray[np.uint8]] = []
        self.references: list[int] = []
        self.slots: list[Slot] = []

    def add_tensor(self, tensor: torch.Tensor) -> int:
        """Takes up what a tensor looks at. Returns where it begins in its storage, in bytes."""
        storage = tensor.untyped_storage()
        item = tensor.element_size()
        low = int(tensor.storage_offset()) * item
        if tensor.is_contiguous():
            high = low + tensor.numel() * item
        else:
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            high = low + (1 + sum((length - 1) * step for length, step in steps)) * item
        # Not by address: of two storages that begin at one, each keeps its own size.
        number = self._numbers.setdefault(storage._cdata, len(self._spans))
        if number == len(self._spans):
            # Inference tensors count no versions.
            version = None if tensor.is_inference() else tensor._version
            self._spans.append(_Storage(storage, low, high, version))
        else:
            span = self._spans[number]
            assert isinstance(span, _Storage)
            span.low, span.high = min(span.low, low), max(span.high, high)
        self._next_reference = number
        return low

    def add_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Takes up a tensor's mark, or an array's memory. False: it is not part of the pickle."""
        if self._next_reference is None:
            raw = buffer.raw()
            memory = np.frombuffer(raw, np.uint8)
            # What is read-only stays so within the pickle, as bytes; a slot's memory can be written to.
            span = self.copy(memory) if memory.size > INLINE_BYTES and not raw.readonly else None
            if span is None:
                return True
            self._next_reference = len(self._spans)
            self._spans.append(span)
        self.references.append(self._next_reference)
        self._next_reference = None
        return False

    def copy(self, memory: NDArray[np.uint8]) -> Span | None:
        """Copies bytes into a slot; None where there is none."""
        taken = self._free_slots.take(memory.size)
        if taken is None:
            return None
        slot, array = taken
        array[:] = memory
        self.slots.append(slot)
        self._copies.append(array)
        return slot.flag, slot.offset, memory.size

    def describe(self) -> list[Span]:
        """Moves every span to where it travels, and says where that is."""
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
        copied = None if self._repeated.note(span.storage, span.version) else self.copy(memory)
        return (content, low) if copied is None else (*copied, low)


class _Storage:
    """The stretch of a storage, in bytes, that a batch's tensors look at."""

    __slots__ = ("high", "low", "storage", "version")

    def __init__(self, storage: torch.UntypedStorage, low: int, high: int, version: int | None) -> None:
        self.storage = storage
        self.low = low
        self.high = high
        self.version = version
