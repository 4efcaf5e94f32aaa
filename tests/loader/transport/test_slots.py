"""Slots in use never overlap, however they are taken, handed over, held and freed."""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import signal
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fastload.loader.transport.memory import Arena, Slot, Slots, _loans

pytestmark = pytest.mark.skipif(Arena.create(1) is None, reason="needs memory files (Linux)")


class Transport(RuleBasedStateMachine):
    """A worker that takes slots, and a training process that frees them; each live slot keeps its content."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena.create(2)
        self.arena.close_descriptor()
        self.slots = Slots(self.arena, 1)
        self.kept: list[tuple[Slot, Any, int]] = []
        self.kept_after_sending: list[tuple[Any, int]] = []
        self.sent: list[tuple[Any, int]] = []
        self.number = 0

    @rule(size=st.integers(1, 300_000))
    def take(self, size: int) -> None:
        self.number = self.number % 250 + 1
        slot, array = self.slots.take(size)
        assert array.size == size
        assert slot.offset >= self.arena.section_bytes
        array[:] = self.number
        self.kept.append((slot, array, self.number))

    @rule(choice=st.integers(0), keeps=st.booleans())
    def hand_over(self, choice: int, keeps: bool) -> None:
        if not self.kept:
            return
        slot, array, number = self.kept.pop(choice % len(self.kept))
        self.slots.hand_over(slot)
        self.sent.append((self.arena.hold(slot.flag, slot.offset, array.size), number))
        if keeps:
            self.kept_after_sending.append((array, number))

    @rule(choice=st.integers(0))
    def drop_in_worker(self, choice: int) -> None:
        for kept in (self.kept, self.kept_after_sending):
            if kept:
                kept.pop(choice % len(kept))

    @rule(choice=st.integers(0))
    def drop_in_training_process(self, choice: int) -> None:
        if self.sent:
            self.sent.pop(choice % len(self.sent))

    @rule()
    def use_one_size_for_long(self) -> None:
        for _ in range(70):
            self.slots.take(5000)

    @invariant()
    def nothing_live_has_changed(self) -> None:
        kept = [(array, number) for _, array, number in self.kept]
        for array, number in kept + self.kept_after_sending + self.sent:
            assert (array == number).all()


TestTransport = Transport.TestCase
TestTransport.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_full_section_gives_no_slot_until_one_is_freed(monkeypatch):
    monkeypatch.setattr("fastload.loader.transport.memory._FLAG_BYTES", 300)
    slots = Slots(Arena.create(1), 0)
    held = []
    while (taken := slots.take(4096)) is not None:
        held.append(taken)
    assert len(held) == 300
    lost = held.pop(17)[0]
    assert slots.take(100)[0] == lost


def test_a_size_beyond_the_section_gives_no_slot():
    arena = Arena.create(1)
    slots = Slots(arena, 0)
    assert slots.take(arena.section_bytes) is None
    assert slots.take(10) is not None


def test_the_lowest_free_slot_is_taken_so_that_its_pages_are_warm():
    slots = Slots(Arena.create(1), 0)
    first = slots.take(10_000)[0]
    assert slots.take(10_000)[0] == first
    one, two = slots.take(10_000), slots.take(10_000)
    assert one[0] == first
    del one
    assert slots.take(10_000)[0] == first
    del two


def test_memory_is_unmapped_with_the_last_array():
    arena = Arena.create(1)
    gone = weakref.ref(arena.memory)
    array = arena.hold(0, 4096, 100)
    arena.close_descriptor()
    del arena
    view = array[3:].view(np.int8)
    del array
    view[0] = 1
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_a_slot_is_free_once_the_last_view_of_it_has_died():
    arena = Arena.create(1)
    for flag in (0, 1):
        arena.memory[flag] = 1
    first = arena.hold(0, 4096, 100)[3:]
    second = arena.hold(1, 8192, 100)
    assert arena.memory[:2] == b"\1\1"
    del first
    third = arena.hold(2, 12288, 100)
    assert arena.memory[:2] == b"\0\1"
    del second, third
    assert _loans() == []
    arena.hold(2, 12288, 100)
    assert arena.memory[:2] == b"\0\0"


def test_a_signal_that_arrives_while_a_slot_is_freed_is_not_lost():
    arena = Arena.create(1)
    held = [arena.hold(0, 4096, 100)]
    with pytest.raises(KeyboardInterrupt):
        run_with_a_signal_before(held.clear)
    assert held == []
    assert _loans() == []


def run_with_a_signal_before(work: Callable[[], None]) -> None:
    # The C library's raise() leaves the signal to the next Python code. A deque that consumes a map runs none
    # between the two calls, so the first Python code is that of `work`.
    interrupt = functools.partial(getattr(ctypes.CDLL(None), "raise"), signal.SIGINT)
    deque(map(operator.methodcaller("__call__"), (interrupt, work)), maxlen=0)
    handle_signals()


def handle_signals() -> None:
    """Python 3.14 handles signals where a function begins or a loop repeats."""
