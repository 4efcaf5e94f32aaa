"""Judging: the slower of two rates names the side, and trials give the gains."""

import math
from dataclasses import replace

import pytest

from fastload.doctor.findings import LoaderTrial, MachineState, Sampled
from fastload.doctor.findings import TrainingMeasurements as Training
from fastload.doctor.judging.fixes import CHANGES, diagnose, workers_to_try
from fastload.doctor.judging.judge import Rates, judge, rates_of
from fastload.doctor.judging.step_fixes import STEP_CHANGES
from fastload.loader.clock import LoadTimes

MACHINE = MachineState(8.0, 8)


def seen(**seconds):
    return tuple(Sampled(category, f"train.py:7 {category}()", taken) for category, taken in seconds.items())


def training(num_workers=0, wait_s=0.08, step_s=0.02, loading=None, step=None, busy_s=None, **changes):
    """100 batches of 32; each process takes `busy_s` for all of its batches."""
    processes = max(1, num_workers)
    busy_s = 100 * wait_s if busy_s is None else busy_s
    cpu_s = processes * changes.pop("cpu_s", busy_s)
    values = {
        "machine": MACHINE,
        "num_workers": num_workers,
        "batch_size": 32,
        "batches": 100,
        "waits": 99,
        "waiting_s": 99 * wait_s,
        "steps": 100,
        "stepping_s": 100 * step_s,
        "work": LoadTimes(100, 3200, processes * busy_s, cpu_s, 0.0, 0.0),
        "busiest_s": busy_s,
        "loading": seen(decode=6.0, transform=2.0) if loading is None else loading,
        "training": seen(model=2.0) if step is None else step,
    }
    return Training(**{**values, **changes})


def changes_to_try(measured):
    """The names of the changes that can help."""
    judged = judge(measured)
    return [change.name for change in CHANGES if change.can_help(judged) and change not in STEP_CHANGES]


def trial(kind="same", workers=2, rate=1000.0, **changes):
    return LoaderTrial(kind, workers, rate, changes.pop("cpu_s", 0.0), changes.pop("start_s", 0.0), **changes)


@pytest.mark.parametrize(
    ("loading", "verdict"),
    [
        (seen(decode=6.0, transform=2.0), "decoding"),
        (seen(decode=2.0, transform=6.0), "transforms"),
        (seen(read=6.0, transform=2.0), "storage"),
        (seen(collate=6.0, transform=2.0), "transport"),
        ((), "transforms"),
        (seen(decode=0.0), "transforms"),  # the thread never ran between two samples
    ],
)
def test_slow_loading_is_named_after_its_largest_part(loading, verdict):
    diagnosis = diagnose(training(loading=loading))
    assert (diagnosis.side, diagnosis.verdict) == ("loading", verdict)


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        (seen(model=7.0, work=3.0), "model"),
        (seen(model=3.0, work=7.0), "main thread"),
        (seen(model=3.0, copy=7.0), "copy"),
        (seen(model=4.0, work=2.5, script=3.5), "main thread"),
    ],
)
def test_a_slow_step_is_named_after_its_largest_part(step, verdict):
    diagnosis = diagnose(training(wait_s=0.02, step_s=0.08, step=step))
    assert (diagnosis.side, diagnosis.verdict) == ("training step", verdict)


def test_waiting_for_a_free_cpu_is_neither_loading_nor_the_step():
    work = LoadTimes(100, 3200, 8.0, 2.0, 6.0, 0.0)
    loaded = training(wait_s=0.08, step_s=0.09, step_delayed_s=6.0, step=seen(work=3.0), work=work)
    diagnosis = diagnose(loaded)
    assert (diagnosis.side, diagnosis.verdict) == ("training step", "main thread")


def test_the_scripts_own_code_is_never_called_the_model():
    headline = diagnose(training(step_s=0.2, step=seen(model=1.0, script=6.5, work=2.4))).headline
    assert headline.startswith(
        "The script's own code between two batches is the limit, with 90% of each step"
    )


def test_a_step_takes_at_least_its_cpu_time_however_long_it_waits_for_a_cpu():
    measured = training(step_s=0.08, step_delayed_s=9.0, step_cpu_s=16.0, wait_s=0.001)
    assert rates_of(measured).step == pytest.approx(100 * 32 / (16.0 / 8))
    assert diagnose(measured).verdict == "model"


def test_logging_is_the_limit_despite_a_quarter_of_waiting():
    measured = training(wait_s=0.024, step_s=0.076, step=seen(work=7.0, model=0.6))
    diagnosis = diagnose(measured)
    assert diagnosis.verdict == "main thread"
    assert diagnosis.headline.startswith("Logging")
    assert "24 ms waiting for data, 76 ms training" in diagnosis.evidence[0]


def test_reading_within_a_decoding_call_is_storage():
    measured = training(loading=seen(load=8.0), cpu_s=1.0)
    assert diagnose(measured).verdict == "storage"
    assert diagnose(training(loading=seen(load=8.0))).verdict == "decoding"


def test_a_transform_that_sleeps_is_not_storage():
    assert diagnose(training(loading=seen(transform=7.0, decode=1.0), cpu_s=1.0)).verdict == "transforms"


def test_waiting_for_idle_workers_is_transport():
    measured = training(2, wait_s=0.08, busy_s=2.0, trials=(trial(rate=300.0),))
    assert diagnose(measured).verdict == "transport"


def test_waiting_for_one_slow_worker_is_not_transport():
    measured = training(2, wait_s=0.08, busy_s=4.5, trials=(trial(rate=400.0),))
    assert diagnose(measured).verdict == "transport"
    assert diagnose(replace(measured, busiest_s=8.0)).verdict == "decoding"


def test_with_workers_the_rate_without_training_decides():
    slow, fast = trial(rate=300.0), trial(rate=30_000.0)
    measured = training(2, wait_s=0.01, step_s=0.02, busy_s=0.2)
    assert rates_of(replace(measured, trials=(slow,))).loading == 300.0
    assert diagnose(replace(measured, trials=(fast,))).side == "training step"


def test_a_trial_from_memory_does_not_hide_a_slow_disk():
    measured = training(
        2, wait_s=0.08, busy_s=9.0, cpu_s=1.0, loading=seen(read=9.0), trials=(trial(rate=9000.0),)
    )
    diagnosis = diagnose(measured)
    assert diagnosis.verdict == "storage"
    assert diagnosis.loading_per_s < 1000
    assert any("from the disk" in doubt for doubt in diagnosis.doubts)


def test_nearly_equal_sides_are_called_balanced():
    diagnosis = diagnose(training(wait_s=0.05, step_s=0.052))
    assert diagnosis.side == "balanced"
    assert any("nearly equally fast" in doubt for doubt in diagnosis.doubts)
    assert diagnose(training(wait_s=0.05, step_s=0.06)).side == "training step"


def test_a_busy_machine_is_a_reason_for_doubt():
    busy = replace(MACHINE, other_cpus=4.0)
    doubts = diagnose(training(machine=busy)).doubts
    assert any("other programs took 4.0 of 8 CPUs" in doubt for doubt in doubts)
    assert diagnose(training()).doubts == ()


def test_a_busy_gpu_is_the_limit_wherever_the_host_waits():
    diagnosis = diagnose(training(device="cuda", gpu_share=0.95))
    assert (diagnosis.side, diagnosis.verdict) == ("training step", "model")
    assert diagnose(training(device="cuda", gpu_share=0.85)).verdict == "decoding"


def test_warm_up_is_reported():
    evidence = diagnose(training(warmup_steps=1, warmup_s=31.0)).evidence
    assert any("first step took 31 s" in text for text in evidence)


@pytest.mark.parametrize(("seconds", "verdict"), [(0.001, "little"), (0.003, "decoding")])
def test_a_quarter_of_a_second_is_too_little(seconds, verdict):
    assert diagnose(training(wait_s=0.9 * seconds, step_s=0.1 * seconds)).verdict == verdict


def test_workers_whose_start_takes_most_of_the_time_are_too_many():
    measured = training(2, wait_s=0.001, step_s=0.001, first_wait_s=2.0, trials=(trial(start_s=1.0),))
    assert diagnose(measured).verdict == "little"
    assert diagnose(replace(measured, first_wait_s=0.1)).verdict != "little"


def test_workers_that_start_for_long_do_not_make_a_long_epoch_little():
    measured = training(2, wait_s=0.018, step_s=0.002, first_wait_s=6.0, trials=(trial(start_s=6.0),))
    assert diagnose(measured).verdict == "decoding"
    short = diagnose(training(2, wait_s=0.001, step_s=0.001, first_wait_s=2.0, trials=(trial(start_s=2.0),)))
    assert "100 batches took 2.2 s, starting workers 2 s of it" in short.headline


class TestTheRule:
    def test_without_workers_loading_and_the_step_take_turns(self):
        assert Rates(100.0, 300.0, 0, 8.0).combined() == pytest.approx(75.0)

    def test_with_workers_the_slower_decides(self):
        assert Rates(100.0, 300.0, 2, 8.0).combined() == 100.0
        assert Rates(400.0, 300.0, 2, 8.0).combined() == 300.0

    def test_the_cpus_limit_the_rate(self):
        assert Rates(400.0, 300.0, 2, 2.0, loading_cpu_s=0.006, step_cpu_s=0.004).combined() == pytest.approx(
            200.0
        )

    def test_the_start_of_workers_counts_in_an_epoch_only(self):
        rates = Rates(100.0, 300.0, 2, 8.0, start_s=1.0, epoch_samples=100.0)
        assert (rates.combined(), rates.of_epoch()) == (100.0, pytest.approx(50.0))
        assert replace(rates, epoch_samples=math.inf).of_epoch() == pytest.approx(100.0)


def test_a_quota_is_a_limit():
    [limit] = diagnose(training(machine=replace(MACHINE, usable_cpus=2.0))).limits
    assert "2 CPUs' worth of time on 8 CPUs" in limit


def test_time_without_a_free_cpu_explains_a_step_that_is_longer_than_its_rate():
    diagnosis = diagnose(replace(training(step_s=0.01), step_delayed_s=0.5))
    assert "For 5 ms of a step no CPU was free" in diagnosis.evidence[0]


class TestTrials:
    @pytest.mark.parametrize(("workers", "names"), [(0, []), (2, ["none", "workers"])])
    def test_too_little_work_may_only_have_too_many_workers(self, workers, names):
        measured = training(workers, wait_s=0.001, step_s=0.0001)
        assert judge(measured).verdict == "little"
        assert changes_to_try(measured) == names

    def test_a_training_that_hardly_waits_needs_none(self):
        measured = training(wait_s=0.001, step_s=0.1)
        assert judge(measured).verdict == "model"
        assert changes_to_try(measured) == []

    def test_fastloads_loader_is_tried_wherever_the_training_waits(self):
        measured = training(wait_s=0.05, step_s=0.052)
        assert judge(measured).verdict == "model"
        assert changes_to_try(measured) == ["workers", "loader"]

    def test_slow_decoding_is_tried_with_workers_compiled_and_packed(self):
        assert changes_to_try(training()) == ["workers", "loader", "data"]

    @pytest.mark.parametrize(
        ("workers", "cpu_s", "numbers"), [(0, 8.0, [4, 8]), (0, 1.0, [4, 8, 32]), (8, 8.0, [0, 4])]
    )
    def test_numbers_of_workers_to_try_are_near_the_number_of_cpus(self, workers, cpu_s, numbers):
        assert workers_to_try(training(workers, busy_s=8.0, cpu_s=cpu_s)) == numbers
