"""Slots: no two live ones overlap, whatever is taken, handed over, kept and freed, in whatever order."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fastload.transport.memory import Arena
from fastload.transport.slots import Slots

pytestmark = pytest.mark.skipif(Arena.create(1) is None, reason="needs memory files (Linux)")


class Transport(RuleBasedStateMachine):
    """A worker that takes, and a training process that frees; every live slot keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena.create(2)
        self.arena.close_descriptor()
        self.slots = Slots(self.arena, 1)
        self.kept: list[tuple[Any, int]] = []
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
        slot, array, number = self.kept[choice % len(self.kept)]
        if not any(slot == sent for sent, _, _ in self.sent):
            self.slots.hand_over(slot)
            self.sent.append((slot, self.arena.hold(slot.flag, slot.offset, array.size), number))
        if not keeps:
            self.kept.pop(choice % len(self.kept))

    @rule(choice=st.integers(0))
    def drop_in_worker(self, choice: int) -> None:
        if self.kept:
            self.kept.pop(choice % len(self.kept))

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
        for _, array, number in self.kept + self.sent:
            assert (array == number).all()


TestTransport = Transport.TestCase
TestTransport.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_section_that_is_full_gives_none_and_gives_again_after_a_drop(monkeypatch):
    monkeypatch.setattr("fastload.transport.slots._FLAG_BYTES", 300)
    slots = Slots(Arena.create(1), 0)
    held = []
    while (taken := slots.take(4096)) is not None:
        held.append(taken)
    assert len(held) == 300
    lost = held.pop(17)[0]
    assert slots.take(100)[0] == lost


def test_a_size_beyond_the_section_gives_none():
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


def test_an_arena_goes_with_its_last_array():
    import weakref

    arena = Arena.create(1)
    gone = weakref.ref(arena)
    array = arena.hold(0, 4096, 100)
    arena.close_descriptor()
    del arena
    assert gone() is not None
    view = array[3:].view(np.int8)
    del array
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None
