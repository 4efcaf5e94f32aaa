"""A loader stays within its limits: CPUs, memory, descriptors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastload.loader.measurements import limits_within, read_limits

MIB = 1 << 20


@given(
    available=st.integers(0, 64 << 30),
    batch_bytes=st.integers(1, 4 << 30),
    forks=st.booleans(),
    cpus=st.integers(1, 64),
)
def test_workers_and_batches_leave_a_quarter_of_the_memory_and_a_gibibyte(
    available, batch_bytes, forks, cpus
):
    limits = limits_within(cpus, available, None, forks, batch_bytes)
    each = (100 if forks else 400) * MIB
    taken = limits.most_workers * each + limits.most_batches * batch_bytes
    assert taken <= max(0, min(available * 0.75, available - (1 << 30)))
    assert limits.most_workers <= 16 * cpus


def test_few_descriptors_allow_few_workers():
    limits = limits_within(8, 64 << 30, 100, True, MIB)
    assert limits.most_workers == 4
    assert "ulimit -n" in limits.reason


def test_no_room_at_all_allows_no_workers():
    assert limits_within(8, 1 << 30, None, True, MIB).most_workers == 0
    assert limits_within(8, 64 << 30, 10, True, MIB).most_workers == 0


def test_ranks_of_one_machine_share_its_cpus(monkeypatch):
    one_rank = read_limits(None, MIB).cpus
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert read_limits(None, MIB).cpus == max(1, one_rank // 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert read_limits(None, MIB).cpus == 1


def test_plenty_of_everything_is_limited_by_cpus():
    limits = limits_within(4, 64 << 30, 100_000, True, MIB)
    assert limits.most_workers == 64
    assert "4 CPUs" in limits.reason
