"""What a sample costs, told from an epoch's times."""

import dataclasses

import pytest

from fastload.loader.diagnosis import Measurements, of_epoch
from fastload.loader.diagnosis.costs import MOST_FORK_S, costs_of, receive_s, warming_s
from tests.loader.diagnosis.measured import CPUS, epoch, seen


@pytest.mark.parametrize("counted", [3, 32, 640])
def test_making_and_taking_have_one_unit_whatever_a_batchs_first_tensor_counts(counted):
    times = dataclasses.replace(epoch(), batch_size=counted, samples=100 * counted)
    assert costs_of(Measurements(times, CPUS)) == costs_of(Measurements(epoch(), CPUS))


def test_ready_made_batches_are_costed_by_what_they_hold():
    times = epoch()
    loading = tuple(dataclasses.replace(one, samples=one.batches) for one in times.loading)
    ready = costs_of(Measurements(dataclasses.replace(times, loading=loading), CPUS))
    assert ready == costs_of(Measurements(times, CPUS))


def test_what_only_the_first_step_takes_is_no_part_of_a_step():
    steady = epoch()
    first_s = 50 * steady.steps_s[0]
    times = dataclasses.replace(
        steady,
        steps_s=(first_s, *steady.steps_s[1:]),
        stepping_s=steady.stepping_s + first_s - steady.steps_s[0],
    )
    assert costs_of(Measurements(times, CPUS)).step_s == pytest.approx(
        costs_of(Measurements(steady, CPUS)).step_s
    )
    # Of a long training only the latest steps are known, and the first is not among them.
    long = dataclasses.replace(times, batches=1000)
    assert warming_s(long) == 0


def test_looking_is_no_waiting_for_a_disk():
    times = epoch(cpu_s=9.95)
    assert costs_of(Measurements(times, CPUS)).blocked_s > 0
    assert costs_of(Measurements(times, CPUS, loading=seen(decode=10))).blocked_s == 0


def test_forked_workers_start_one_after_the_other():
    measured = Measurements(epoch(first_wait_s=0.26), dataclasses.replace(CPUS, epoch_batches=100))
    costs = costs_of(measured)
    assert costs.start_s(2) == pytest.approx(0.06)
    assert costs.start_s(8) == pytest.approx(0.24)


def test_spawned_workers_import_beside_each_other():
    measured = Measurements(epoch(first_wait_s=4.2), dataclasses.replace(CPUS, epoch_batches=100))
    costs = costs_of(measured)
    assert costs.start_s(2) == pytest.approx(4.0)
    assert costs.start_s(8) == pytest.approx(4.0 + 6 * MOST_FORK_S)
    assert costs.start_s(16) == pytest.approx(16 * MOST_FORK_S + 2 * (4.0 - 2 * MOST_FORK_S))


@pytest.mark.parametrize("lasting", [{"persistent_workers": True}, {"epoch_batches": 10}])
def test_workers_that_live_on_cost_no_start(lasting):
    measured = Measurements(epoch(first_wait_s=4.2), dataclasses.replace(CPUS, **lasting))
    assert costs_of(measured).start_s(8) == 0


def test_workers_of_torchs_loader_cost_their_way_before_there_are_any():
    alone = costs_of(Measurements(epoch(0), CPUS))
    ours = costs_of(Measurements(epoch(0), dataclasses.replace(CPUS, is_fastload=True)))
    assert alone.receive_s > ours.receive_s == 0
    assert alone.rate(1) <= ours.rate(1)
    assert alone.rate(0) == ours.rate(0)


def test_fewer_workers_are_advised_where_far_too_many_compute():
    few = dataclasses.replace(CPUS, usable_cpus=2.0, cpus=2)
    [fix] = [fix for fix in of_epoch(epoch(16, cpu_s=1.2, delayed_s=8.8), few).fixes if fix.kind == "workers"]
    assert "num_workers=2) in place of num_workers=16" in fix.action
    assert fix.gain is None
    assert "88% of their time" in fix.why


def test_more_workers_are_a_bound_where_nobody_measured_the_disk():
    [fix] = [fix for fix in of_epoch(epoch(cpu_s=1.0), CPUS).fixes if fix.kind == "workers"]
    assert fix.is_bound


@pytest.mark.parametrize(
    ("known", "received_s"), [({}, 2.0), ({"training_delayed_s": 1.0}, 1.0), ({"receiving_cpu_s": 0.5}, 0.5)]
)
def test_receiving_leaves_out_the_wait_for_a_cpu(known, received_s):
    measured = Measurements(epoch(), CPUS, training=seen(receive=2.0, idle=6.0), **known)
    assert receive_s(measured) == pytest.approx(received_s)
