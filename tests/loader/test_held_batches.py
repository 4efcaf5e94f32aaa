"""A held batch never changes, whichever part of it is held, and however long."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch

import fastload
from tests.loader.datasets import Rows


class Images(Rows):
    """Sample `i` is filled with i, in shapes of several sizes."""

    def __getitem__(self, index: int) -> Any:
        return {
            "image": torch.full((3, 20, 30), index, dtype=torch.float32),
            "mask": torch.full((50, 60), index % 251, dtype=torch.uint8),
            "label": index,
        }


def views(batch: dict[str, Any], chooser: random.Random) -> Any:
    """Return a part of a batch: all of it, a leaf, a slice, a transpose, a NumPy array, a memoryview."""
    leaf = batch[chooser.choice(["image", "mask"])]
    return chooser.choice(
        [
            lambda: batch,
            lambda: batch["label"],
            lambda: leaf,
            lambda: leaf[1],
            lambda: leaf[:, 5:9].transpose(0, 1),
            lambda: leaf.numpy(),
            lambda: memoryview(leaf.numpy())[1:],
            lambda: leaf.detach().view(-1)[7:],
            lambda: iter(leaf),
        ]
    )()


def copied(held: Any) -> Any:
    if isinstance(held, dict):
        return {key: value.clone() for key, value in held.items()}
    if isinstance(held, torch.Tensor):
        return held.clone()
    return torch.tensor(memoryview(held).tolist()) if isinstance(held, memoryview) else torch.tensor(held)


def is_unchanged(held: Any, copy: Any) -> bool:
    if isinstance(held, dict):
        return all(torch.equal(held[key], copy[key]) for key in held)
    return torch.equal(copied(held), copy)


def hold_at_random(batches: int, most_held: int) -> None:
    chooser = random.Random(0)
    torch.manual_seed(0)
    ours = iter(fastload.DataLoader(Images(batches * 4), batch_size=4, shuffle=True, num_workers=2))
    torch.manual_seed(0)
    theirs = iter(torch.utils.data.DataLoader(Images(batches * 4), batch_size=4, shuffle=True))
    held: list[tuple[Any, Any]] = []
    for batch, expected in zip(ours, theirs, strict=True):
        assert all(torch.equal(batch[key], expected[key]) for key in expected)
        part = views(batch, chooser)
        if hasattr(part, "__next__"):
            part = next(part)
        held.append((part, copied(part)))
        while len(held) > chooser.randint(0, most_held):
            part, copy = held.pop(chooser.randrange(len(held)))
            assert is_unchanged(part, copy)
    for part, copy in held:
        assert is_unchanged(part, copy)


def test_thousands_of_batches_and_views_dropped_in_random_order():
    hold_at_random(batches=800, most_held=60)


@pytest.mark.soak
def test_a_hundred_thousand_batches_and_views_dropped_in_random_order():
    hold_at_random(batches=100_000, most_held=400)


def test_more_batches_than_there_are_slots_may_be_held(monkeypatch):
    # Forked workers inherit it. Tensors without a slot are sent in torch's way, with a descriptor each.
    monkeypatch.setattr("fastload.loader.transport.memory._FLAG_BYTES", 100)
    held = [rows for rows, _ in fastload.DataLoader(Rows(200, 1100), batch_size=1, num_workers=1)]
    assert [int(rows[0, 0]) for rows in held] == list(range(200))
    assert 90 <= sum(rows.is_shared() for rows in held) <= 110


def test_batches_outlive_their_loader():
    loader = fastload.DataLoader(Rows(10), batch_size=2, num_workers=2)
    held = list(loader)
    del loader
    assert [rows[1, 0].item() for rows, _ in held] == [1, 3, 5, 7, 9]


def test_writing_to_a_batch_changes_that_batch_alone():
    for rows, _ in fastload.DataLoader(Rows(200), batch_size=2, num_workers=2):
        assert rows[0, 0] == rows[0, 1] - 1
        rows.fill_(-1)
        rows.requires_grad_()
        (rows * 2).sum().backward()
        assert rows.grad is not None


def test_a_forked_childs_view_of_a_batch_stays_when_the_parent_frees_it():
    iterator = iter(fastload.DataLoader(Rows(400, 3000), batch_size=2, num_workers=1))
    rows, _ = next(iterator)
    go_reading, go_writing = os.pipe()
    told_reading, told_writing = os.pipe()
    child = os.fork()
    if not child:
        os.read(go_reading, 1)
        os.write(told_writing, b"y" if rows[0, 0] == 0 and rows[1, -1] == 3000 else b"n")
        os._exit(0)
    address = rows.data_ptr()
    del rows
    addresses = {next(iterator)[0].data_ptr() for _ in range(150)}
    assert address not in addresses
    os.write(go_writing, b"g")
    assert os.read(told_reading, 1) == b"y"
    os.waitpid(child, 0)
    # Once the child is gone its memory is used again.
    assert address in {rows.data_ptr() for rows, _ in iterator}
    for descriptor in (go_reading, go_writing, told_reading, told_writing):
        os.close(descriptor)


def test_slot_that_a_forked_child_drops_is_still_held_by_the_parent():
    iterator = iter(fastload.DataLoader(Rows(400, 3000), batch_size=2, num_workers=1))
    rows, _ = next(iterator)
    child = os.fork()
    if not child:
        del rows
        os._exit(0)
    os.waitpid(child, 0)
    copy = rows.clone()
    for _ in iterator:
        assert torch.equal(rows, copy)


def test_memory_of_held_batches_is_returned_to_the_system():
    iterator = iter(fastload.DataLoader(Rows(3000, 30_000), batch_size=4, num_workers=1))
    held = [next(iterator) for _ in range(300)]
    worker = iterator._workers[0].pid
    peak = resident_shared_bytes(worker)
    held.clear()
    for _ in range(300):
        next(iterator)
    assert resident_shared_bytes(worker) < peak / 5


def resident_shared_bytes(process: int) -> int:
    with open(f"/proc/{process}/smaps") as smaps:
        lines = smaps.read().splitlines()
    # Arenas of earlier tests' iterators may be mapped too, if they have not been collected yet.
    starts = [number for number, line in enumerate(lines) if "memfd:fastload" in line]
    sizes = (next(line for line in lines[start:] if line.startswith("Rss:")) for start in starts)
    return sum(int(line.split()[1]) for line in sizes) * 1024
