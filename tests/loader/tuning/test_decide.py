"""A few trials find nearly the best number of workers on simulated machines, whose best is known."""

from __future__ import annotations

import dataclasses
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.loader.measurements import Trial
from fastload.loader.strategies import make_plan
from fastload.loader.tuning.tuning import Tuning
from tests.loader.tuning.simulation import GRID, Machine, limits, searched, single_process_cost

SINGLE = 0


def interpolated(points: dict[int, float], workers: int) -> float:
    """Return a value of the curve through some points, falling a little beyond the last."""
    known = sorted(points)
    if workers >= known[-1]:
        return max(points[known[-1]] - 2.0 * (workers - known[-1]), 1.0)
    low = max(each for each in known if each <= workers)
    high = min(each for each in known if each >= workers)
    if low == high:
        return points[low]
    return points[low] + (points[high] - points[low]) * (workers - low) / (high - low)


# Images per second of YOLOv5s on an RTX 3060, as published by users; the first two are what one process
# would do at half the pace of two workers.
PUBLISHED = {0: 45.0, 1: 60.0, 2: 90.0, 6: 120.0, 12: 110.0}


def published(noise: float = 0.0) -> Machine:
    return Machine(
        lambda workers, prefetch: 64 / interpolated(PUBLISHED, workers),
        single_process_cost(load_s=64 / 45 - 0.5, step_s=0.5),
        limits(cpus=12),
        noise,
    )


def cpu_bound(load_s: float, cpus: int, step_s: float = 1e-4, noise: float = 0.0) -> Machine:
    def batch_s(workers: int, prefetch: int) -> float:
        if not workers:
            return load_s + step_s
        crowded = 1 + 0.02 * max(0, workers - cpus)
        return max(step_s, load_s / min(workers, cpus) * crowded)

    return Machine(batch_s, single_process_cost(load_s, step_s=step_s), limits(cpus), noise)


def fixed(with_workers_s: float, without_s: float = 0.01, noise: float = 0.0, **options) -> Machine:
    """Return a machine on which any workers take the same time."""
    cost = single_process_cost(without_s - 1e-4)
    return Machine(
        lambda workers, prefetch: with_workers_s if workers else without_s, cost, noise=noise, **options
    )


def test_published_curve_of_workers_is_climbed_to_its_top():
    assert searched(published()).best == 6


def test_plan_of_the_published_curve_shows_its_gain():
    measured = searched(published()).measured
    plan = make_plan(measured, measured.decide())
    assert plan.num_workers.value == 6
    assert "2.7 times the rate without workers" in plan.num_workers.reason


def test_published_curve_is_climbed_through_noise():
    machine = published(noise=0.03)
    chosen = [searched(machine, seed).best for seed in range(50)]
    assert statistics.median(chosen) == 6
    assert min(machine.batch_s(6, 2) / machine.batch_s(each, 2) for each in chosen) > 0.9


@pytest.mark.parametrize("cpus", [1, 2, 4, 8, 16])
def test_loading_that_keeps_cpus_busy_gets_as_many_workers_as_cpus(cpus):
    machine = cpu_bound(0.064, cpus)
    chosen = searched(machine).best
    assert machine.regret(chosen, [(cpus, 2), *GRID]) > 0.98 or (cpus == 1 and chosen == SINGLE)


def test_clear_gain_is_settled_after_three_windows():
    assert len(searched(cpu_bound(0.05, cpus=2)).measured.trials) == 3


def test_loading_that_waits_gets_more_workers_than_cpus():
    machine = Machine(
        lambda workers, prefetch: 0.1 / max(workers, 1),
        single_process_cost(0.1, cpu_s=0.004),
        limits(cpus=2, most_workers=32),
        blocked=0.96,
    )
    assert searched(machine).best >= 30


def test_workers_seen_waiting_are_doubled_and_workers_seen_working_are_not():
    def batch_s(workers: int, prefetch: int) -> float:
        return 0.1 / max(workers, 1)

    waiting = Machine(batch_s, single_process_cost(0.1), blocked=0.6)
    assert searched(waiting).best == 32
    assert searched(dataclasses.replace(waiting, blocked=0.3)).best == 2


def test_slow_training_gets_no_more_workers_than_it_needs():
    assert searched(cpu_bound(0.01, cpus=8, step_s=0.1)).best <= 2


def test_training_that_hardly_waits_gets_no_workers():
    found = searched(cpu_bound(0.0005, cpus=8, step_s=0.1))
    assert found.best == SINGLE
    assert found.lost_s == 0
    assert "nothing to gain" in found.measured.why_single_process


def test_epoch_too_short_for_workers_is_left_alone():
    for batches in (4, 18):
        found = searched(cpu_bound(0.005, cpus=2), batches=batches)
        assert found.best == SINGLE
        assert len(found.measured.trials) == 1
        assert "workers could save at most" in found.measured.why_single_process


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_workers_worse_than_none_are_dropped_within_the_budget(noise):
    machine = fixed(0.05, noise=noise)  # five times as slow
    for seed in range(40):
        found = searched(machine, seed, batches=300)
        assert found.best == SINGLE
        assert sum(trial.num_workers > 0 for trial in found.measured.trials) == 1


def test_noise_is_not_taken_for_a_gain():
    chosen = [searched(fixed(0.0105, noise=0.03), seed).best for seed in range(40)]
    assert sum(each == SINGLE for each in chosen) >= 38


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2])
def test_clear_gain_is_found_on_a_busy_machine(noise):
    chosen = [searched(fixed(0.005, noise=noise), seed).best for seed in range(40)]
    assert sum(each != SINGLE for each in chosen) >= 36


@given(
    batches=st.integers(5, 3000), without_s=st.floats(1e-4, 0.1), with_s=st.floats(1e-4, 1.0),
    start_s=st.floats(0.005, 5.0), seed=st.integers(0, 10),
)  # fmt: skip
def test_search_costs_a_share_of_ten_epochs_at_most(batches, without_s, with_s, start_s, seed):
    machine = fixed(with_s, without_s, noise=0.1)
    machine = dataclasses.replace(machine, limits=limits(start_s=start_s))
    found = searched(machine, seed, batches)
    trials = [trial for trial in found.measured.trials if trial.num_workers]
    if not trials:
        assert found.lost_s == 0
        return
    # A trial continues until it has spent the budget and one more window.
    last_s = max(trial.seconds for trial in trials) + 2 * start_s
    assert found.lost_s <= 0.015 * 10 * batches * without_s * 1.5 + len(trials) * last_s


def test_short_epochs_try_workers_that_could_save_more_than_the_trial_costs():
    cost = single_process_cost(0.0038, step_s=0.0)
    measured = Tuning({}, limits(), cost, batches=47, trials=(trial_of(0, 0.0038),))  # epochs of 0.18 s
    assert measured.decide().next == 2
    lost_s = measured.start_s * 2
    lost = dataclasses.replace(measured, trials=(*measured.trials, trial_of(2, 0.006)), lost_s=lost_s)
    assert lost.decide() == (SINGLE, None, False)


def test_trial_waits_until_the_budget_allows_it():
    cost = single_process_cost(0.01, step_s=0.0)
    measured = Tuning({}, limits(start_s=0.1), cost, batches=40, trials=(trial_of(0, 0.01),))
    assert measured.decide() == (SINGLE, None, False)  # nothing to gain
    measured = dataclasses.replace(measured, batches=60)
    assert measured.decide() == (SINGLE, None, True)
    assert dataclasses.replace(measured, seen_batches=60 * 70).decide()[1] == 2
    spent = dataclasses.replace(measured, seen_batches=60 * 70, lost_s=1.6)
    assert spent.decide() == (SINGLE, None, True)


def test_budget_of_an_epoch_of_unknown_length_grows_with_what_was_seen():
    measured = Tuning({}, limits(), single_process_cost(0.01), trials=(trial_of(0, 0.01),))
    assert measured.budget_s == 0
    assert dataclasses.replace(measured, seen_batches=100).budget_s == pytest.approx(0.015 * 200 * 0.01)
    assert dataclasses.replace(measured, batches=100).budget_s == pytest.approx(0.015 * 1000 * 0.01)


def trial_of(workers: int, batch_s: float, waiting_s: float = 0.0, **options) -> Trial:
    return Trial(
        workers,
        10,
        10 * batch_s,
        10 * waiting_s,
        **options,
    )


@pytest.mark.parametrize("start_s", [2.5, 0.025])
def test_spawned_workers_pay_off_only_in_long_epochs(start_s):
    machine = dataclasses.replace(cpu_bound(0.05, cpus=2), limits=limits(start_s=start_s))
    assert searched(machine, batches=100).best == (0 if start_s > 1 else 2)
    assert searched(machine, batches=2000).best == 2


def test_workers_that_take_longer_to_start_than_they_save_in_an_epoch_are_not_taken():
    # 100 batches take 1 s without workers; two workers save 0.4 s of it, and take 0.5 s to start (measured).
    machine = dataclasses.replace(fixed(0.006), start_s=0.25)
    assert searched(machine, batches=100).best == SINGLE
    assert searched(machine, batches=1000).best == 2


def test_tried_workers_are_judged_by_their_times_even_after_a_slow_start():
    slow_start = dataclasses.replace(cpu_bound(0.06, cpus=2), start_s=0.2)
    slow_start.cost = single_process_cost(0.06, cpu_s=0.004)
    slow_start.batch_s = lambda workers, prefetch: 0.06 / max(workers, 1)
    found = searched(slow_start, batches=200)
    assert found.best > 4
    assert len({trial.num_workers for trial in found.measured.trials}) == 2


def test_workers_that_take_long_to_start_are_few():
    cost = single_process_cost(0.1, cpu_s=0.001)
    measured = Tuning({}, limits(start_s=0.1), cost, batches=100)
    assert measured.first_workers == 8
    assert dataclasses.replace(measured, batches=None).first_workers == 32


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
def test_eight_batches_are_prefetched_if_there_is_room(workers, most_batches, expected):
    assert Tuning({}, limits(most_batches=most_batches)).prefetch_of(workers) == expected


def test_explicit_prefetch_factor_is_never_changed():
    found = searched(dataclasses.replace(cpu_bound(0.05, cpus=4), explicit={"prefetch_factor": 3}))
    assert {found.measured.prefetch_of(workers) for workers in range(1, 9)} == {3}
    assert make_plan(found.measured, found.measured.decide()).prefetch_factor.value == 3


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

    cost = single_process_cost(load_s, cpu_s, step_s)
    machine = Machine(batch_s, cost, limits(cpus, most_workers, most_batches), blocked=1 - 1 / waits)
    found = searched(machine)
    best = found.best
    allowed = [(w, 2) for w in range(1, most_workers + 1) if w * 3 <= most_batches]
    assert best <= most_workers
    assert best * (found.measured.prefetch_of(best) + 1) <= most_batches
    assert machine.regret(best, [(0, 0), *allowed]) > 0.75
    assert len(found.measured.trials) < 25


def test_nothing_is_tried_before_anything_is_measured():
    assert Tuning({}, limits()).decide().next is None


def test_reason_that_forbids_workers_ends_the_search():
    measured = Tuning({}, limits(), single_process_cost(0.1), 1000, why_no_workers="it is shared")
    assert measured.decide().next is None
    assert make_plan(measured, measured.decide()).num_workers.reason == "it is shared"


def test_workers_of_a_settled_plan_may_lose_their_start_and_a_twentieth_of_an_epoch():
    cost = single_process_cost(0.01)
    measured = Tuning({}, limits(start_s=0.05), cost, 100, trials=(trial_of(0, 0.01),))
    assert measured.tolerated_loss_s(2) == pytest.approx(2 * 2 * 0.05 + 0.05)
