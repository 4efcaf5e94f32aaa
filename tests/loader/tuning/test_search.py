"""The search finds a number of workers near the best, on machines whose best is known."""

from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.loader.tuning.decide import decide
from fastload.loader.tuning.plan import Measurements, Plan
from fastload.loader.tuning.search import Candidate, next_candidate, prefetch_of, why_alone
from tests.loader.tuning.simulation import GRID, Machine, alone, limits, searched


def interpolated(points: dict[int, float], workers: int) -> float:
    """A curve through some points, falling a little beyond the last."""
    known = sorted(points)
    if workers >= known[-1]:
        return max(points[known[-1]] - 2.0 * (workers - known[-1]), 1.0)
    low = max(each for each in known if each <= workers)
    high = min(each for each in known if each >= workers)
    if low == high:
        return points[low]
    return points[low] + (points[high] - points[low]) * (workers - low) / (high - low)


# Images a second of YOLOv5s on an RTX 3060, as published by its users; the first two are what one process
# would do at half the pace of two workers.
PUBLISHED = {0: 45.0, 1: 60.0, 2: 90.0, 6: 120.0, 12: 110.0}


def published(noise: float = 0.0) -> Machine:
    return Machine(
        lambda workers, prefetch: 64 / interpolated(PUBLISHED, workers),
        alone(load_s=64 / 45 - 0.5, step_s=0.5),
        limits(cpus=12),
        noise,
    )


def test_published_curve_of_workers_is_climbed_to_its_top():
    assert searched(published()).best.num_workers == 6


def test_plan_of_the_published_curve_says_what_it_gains():
    plan = decide(searched(published()).measured)
    assert plan.num_workers.value == 6
    assert plan.predicted_gain == pytest.approx(120 / 45)
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_published_curve_is_climbed_through_noise():
    machine = published(noise=0.03)
    chosen = [searched(machine, seed).best for seed in range(50)]
    assert statistics.median(each.num_workers for each in chosen) == 6
    assert min(machine.batch_s(6, 2) / machine.batch_s(*each) for each in chosen) > 0.95


def cpu_bound(load_s: float, cpus: int, step_s: float = 1e-4, noise: float = 0.0) -> Machine:
    def batch_s(workers: int, prefetch: int) -> float:
        if not workers:
            return load_s + step_s
        crowded = 1 + 0.02 * max(0, workers - cpus)
        return max(step_s, load_s / min(workers, cpus) * crowded)

    return Machine(batch_s, alone(load_s, step_s=step_s), limits(cpus), noise)


@pytest.mark.parametrize("cpus", [1, 2, 4, 8, 16])
def test_loading_that_keeps_cpus_busy_gets_as_many_workers_as_cpus(cpus):
    machine = cpu_bound(0.064, cpus)
    best = searched(machine).best
    assert machine.regret(best, [Candidate(cpus, 2), *GRID]) > 0.98


def test_loading_that_waits_gets_more_workers_than_cpus():
    machine = Machine(
        lambda workers, prefetch: 0.1 / max(workers, 1),
        alone(0.1, cpu_s=0.004),
        limits(cpus=2, most_workers=32),
    )
    assert searched(machine).best.num_workers >= 30


def test_slow_training_gets_no_more_workers_than_it_needs():
    machine = cpu_bound(0.01, cpus=8, step_s=0.1)
    assert searched(machine).best.num_workers <= 2


def test_training_that_hardly_waits_gets_no_workers():
    machine = cpu_bound(0.0005, cpus=8, step_s=0.1)
    found = searched(machine)
    assert found.best == (0, 0)
    assert not found.measured.trials
    assert "nothing to gain" in why_alone(found.measured)


def test_epoch_shorter_than_starting_workers_takes_gets_none():
    found = searched(cpu_bound(0.005, cpus=2), batches=5)
    assert found.best == (0, 0)
    assert not found.measured.trials


def test_transport_dearer_than_loading_gets_no_workers():
    # Each batch costs 2 ms to receive, and 1.5 ms to make.
    machine = Machine(lambda workers, prefetch: 0.002 if workers else 0.0016, alone(0.0015), limits())
    assert searched(machine).best == (0, 0)


def test_workers_slower_than_none_in_a_noisy_run_are_not_taken():
    machine = Machine(
        lambda workers, prefetch: 0.0115 if workers else 0.010, alone(0.0099), limits(), noise=0.03
    )
    chosen = [searched(machine, seed).best for seed in range(40)]
    assert sum(each == (0, 0) for each in chosen) >= 38


def test_more_batches_in_advance_where_that_ends_waits():
    # As many workers as CPUs, and 16 batches under way.
    machine = Machine(
        lambda workers, prefetch: (0.06 if workers * prefetch < 16 else 0.052) if workers else 0.1,
        alone(0.09, step_s=0.01),
        limits(most_workers=2),
    )
    assert searched(machine).best == (2, 8)


def test_few_workers_are_compared_with_as_many_batches_under_way_as_many_workers():
    # With four batches under way, jitter leaves a quarter of the time unused, whoever makes them.
    machine = Machine(
        lambda workers, prefetch: (0.05 if workers * prefetch >= 8 else 0.065) if workers > 1 else 0.1,
        alone(0.1),
        limits(),
    )
    assert searched(machine).best == (2, 4)


@pytest.mark.parametrize(
    ("workers", "most_batches", "expected"),
    [
        (0, 1000, 0),
        (1, 1000, 8),
        (2, 1000, 4),
        (3, 1000, 3),
        (4, 1000, 2),
        (9, 1000, 2),
        (2, 8, 3),
        (2, 6, 2),
    ],
)
def test_eight_batches_are_under_way_where_there_is_room(workers, most_batches, expected):
    assert prefetch_of(Measurements({}, limits(most_batches=most_batches)), workers) == expected


def test_workers_that_take_longer_to_begin_than_they_save_in_an_epoch_are_not_taken():
    # 100 batches: 1 s without workers; two save 0.4 s of it, and take 0.5 s to begin, as was measured.
    machine = Machine(
        lambda workers, prefetch: 0.006 if workers else 0.01, alone(0.0099), limits(start_s=0.25)
    )
    assert searched(machine, batches=100).best == (0, 0)
    assert searched(machine, batches=1000).best.num_workers == 2


def test_prefetch_factor_that_was_said_is_never_changed():
    machine = cpu_bound(0.05, cpus=4)._replace(said={"prefetch_factor": 3})
    found = searched(machine)
    assert {trial.prefetch_factor for trial in found.measured.trials} == {3}
    assert found.best.prefetch_factor == 3


@given(
    load_s=st.floats(0.001, 1.0),
    waits=st.floats(1.0, 20.0),
    step_s=st.floats(1e-4, 0.5),
    cpus=st.integers(1, 16),
    most_workers=st.integers(0, 40),
    most_batches=st.integers(0, 200),
    overhead_s=st.floats(0.0, 0.01),
)
def test_search_ends_within_limits_and_near_the_best(
    load_s, waits, step_s, cpus, most_workers, most_batches, overhead_s
):
    cpu_s = load_s / waits

    def batch_s(workers: int, prefetch: int) -> float:
        if not workers:
            return load_s + step_s
        return max(step_s, load_s / workers, cpu_s / cpus, overhead_s)

    machine = Machine(batch_s, alone(load_s, cpu_s, step_s), limits(cpus, most_workers, most_batches))
    best, measured = searched(machine)
    allowed = [Candidate(0, 0)]
    allowed += [Candidate(w, 2) for w in range(1, most_workers + 1) if w * 3 <= most_batches]
    assert best.num_workers <= most_workers
    assert best.num_workers * (best.prefetch_factor + 1) <= most_batches or not best.num_workers
    assert machine.regret(best, allowed) > 0.85
    assert all(trial.num_workers <= most_workers for trial in measured.trials)


def test_nothing_is_tried_before_anything_is_measured():
    assert next_candidate(Measurements({}, limits())) is None


def test_reason_that_forbids_workers_ends_the_search():
    measured = Measurements({}, limits(), alone(0.1), 1000, only_alone="the dataset says so")
    assert next_candidate(measured) is None
    assert why_alone(measured) == "the dataset says so"
