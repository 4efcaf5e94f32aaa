"""From values as they are measured to the verdict, the fixes and their gains."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.loader.diagnosis import Measurements, Setting, diagnose, of_epoch
from fastload.loader.diagnosis.costs import Costs
from fastload.loader.diagnosis.measurements import Decoding, Limits, ModelTrial, SlowSample, Store
from tests.loader.diagnosis.measured import CPUS, epoch, seen

VERDICTS = {
    "waits for a disk": ("storage", Measurements(epoch(cpu_s=1.0), CPUS)),
    "waits in its reads": ("storage", Measurements(epoch(cpu_s=1.0), CPUS, loading=seen(read=9, decode=1))),
    "waits in calls that read and decode": (
        "storage",
        Measurements(epoch(cpu_s=2.0), CPUS, loading=seen(load=8, transform=2)),
    ),
    "waits in calls that read and decode, and computes in transforms": (
        "storage",
        Measurements(epoch(cpu_s=5.2), CPUS, loading=seen(load=5.6, transform=4.4)),
    ),
    "computes in calls that read and decode": (
        "decoding",
        Measurements(epoch(), CPUS, loading=seen(load=8, transform=2)),
    ),
    "decodes": ("decoding", Measurements(epoch(), CPUS, loading=seen(decode=7, transform=2, read=1))),
    "transforms": ("transforms", Measurements(epoch(), CPUS, loading=seen(decode=3, transform=7))),
    "sleeps in a transform": (
        "transforms",
        Measurements(epoch(cpu_s=1.0), CPUS, loading=seen(decode=1, transform=9)),
    ),
    "computes, nobody looked at what": ("preparing", Measurements(epoch(), CPUS)),
    "loads by itself": ("preparing", Measurements(epoch(num_workers=0), CPUS)),
    "has idle workers": ("transport", Measurements(epoch(busy_s=2.0), CPUS)),
    "takes batches in": ("transport", Measurements(epoch(), CPUS, training=seen(receive=7, idle=1, model=2))),
    "collates": ("transport", Measurements(epoch(), CPUS, loading=seen(collate=8, decode=2))),
    "dies of a small /dev/shm": (
        "transport",
        Measurements(epoch(), CPUS, error="RuntimeError: unable to write to file </torch_1>"),
    ),
    "runs out of descriptors": (
        "transport",
        Measurements(
            epoch(), CPUS, error="unable to open shared memory object </torch_1>: Too many open files"
        ),
    ),
    "has a kernel too large for its GPU": (
        "preparing",
        Measurements(epoch(), CPUS, error="OutOfResources: out of resource: shared memory"),
    ),
    "fills the disk": (
        "preparing",
        Measurements(epoch(), CPUS, error="OSError: [Errno 28] No space left on device: '/out/last.pt'"),
    ),
    "copies ahead": ("copy", Measurements(epoch(copying_s=7.0), CPUS)),
    "copies itself": (
        "copy",
        Measurements(epoch(waiting_s=0.1, stepping_s=9.9), CPUS, training=seen(copy=7, model=3)),
    ),
    "does not wait": ("model", Measurements(epoch(waiting_s=0.1, stepping_s=9.9), CPUS)),
    "loads in little time by itself": ("model", Measurements(epoch(0, waiting_s=1.0, stepping_s=9.0), CPUS)),
    "logs": (
        "main thread",
        Measurements(epoch(waiting_s=0.1, stepping_s=9.9), CPUS, training=seen(work=7, model=3)),
    ),
    "starts workers": (
        "little",
        Measurements(epoch(waiting_s=0.2, stepping_s=0.3, first_wait_s=2.0, busy_s=0.1), CPUS),
    ),
    "would go on for long, had it not been cut": (
        "preparing",
        Measurements(
            epoch(waiting_s=1.8, stepping_s=0.2, first_wait_s=3.0, busy_s=2.0),
            dataclasses.replace(CPUS, epoch_batches=10_000),
        ),
    ),
    "waits for its GPU in copies": (
        "model",
        Measurements(
            epoch(waiting_s=0.1, stepping_s=9.9),
            dataclasses.replace(CPUS, device="cuda"),
            training=seen(copy=7, model=3),
        ),
    ),
    "is over at once": (
        "little",
        Measurements(epoch(0, waiting_s=0.05, stepping_s=0.05, first_wait_s=0.0), CPUS),
    ),
}


@pytest.mark.parametrize("what", VERDICTS)
def test_a_training_that(what):
    verdict, measured = VERDICTS[what]
    diagnosis = diagnose(measured)
    assert diagnosis.verdict == verdict, str(diagnosis)


def test_an_epoch_alone_gives_a_diagnosis_that_reads_as_text():
    text = str(of_epoch(epoch(), CPUS))
    for part in ("is the limit", "Evidence:", "num_workers=", "gain:"):
        assert part in text


def test_more_workers_gain_what_the_cpus_allow():
    # Two workers make 640 samples/s; eight CPUs, the training using a part of one, some 2,400.
    [fix] = [
        fix for fix in of_epoch(epoch(waiting_s=9.0, stepping_s=0.5), CPUS).fixes if fix.kind == "workers"
    ]
    assert fix.gain == pytest.approx(4, rel=0.1)


def test_workers_that_wait_may_be_more_than_the_cpus():
    few = dataclasses.replace(CPUS, usable_cpus=2.0, cpus=2)
    diagnosis = of_epoch(epoch(cpu_s=0.5, waiting_s=9.5, stepping_s=0.1), few)
    [fix] = [fix for fix in diagnosis.fixes if fix.kind == "workers"]
    assert fix.gain > 3
    assert "num_workers=8" in fix.action


def test_no_gain_goes_beyond_the_training_step():
    for _, measured in VERDICTS.values():
        times = measured.times
        for fix in diagnose(measured).fixes:
            if fix.gain is not None and fix.kind in ("workers", "pack", "cache", "decoder"):
                assert fix.gain <= (times.waiting_s + times.stepping_s) / times.stepping_s * 1.1


def test_without_schedstat_full_cpus_are_no_disk():
    starved = dataclasses.replace(CPUS, usable_cpus=0.5, cpus=4)
    measured = Measurements(
        epoch(cpu_s=2.4), starved, loading=seen(decode=9, transform=1), training_cpu_s=0.2
    )
    diagnosis = diagnose(measured)
    assert diagnosis.verdict == "decoding"
    assert any("quota" in limit for limit in diagnosis.limits)
    [fix] = [fix for fix in diagnosis.fixes if fix.kind == "quota"]
    assert fix.gain > 2


def test_packing_gains_what_decoding_takes():
    decoding = Decoding({"PIL": 5.6e-3, "OpenCV": 3e-3, "raw": 2e-4}, {"raw": 6e5}, 400, 500)
    measured = Measurements(epoch(), CPUS, loading=seen(decode=9, transform=1), decoding=decoding)
    gains = {fix.kind: fix.gain for fix in diagnose(measured).fixes}
    assert gains["pack"] > gains["decoder"] > 1.5


def test_a_cache_takes_what_fits():
    store = Store(1000, 10**9, "network, nfs4", True, 200.0, 200.0, 1e8, 9000.0, 5e-3)
    measured = Measurements(
        epoch(cpu_s=1.0, stepping_s=0.2), CPUS, store=store, limits=Limits(available_bytes=10**10)
    )
    whole = {fix.kind: fix.gain for fix in diagnose(measured).fixes}
    small = dataclasses.replace(measured, limits=Limits(available_bytes=5 * 10**8))
    part = {fix.kind: fix.gain for fix in diagnose(small).fixes}
    assert whole["cache"] > part["cache"] > 1


def test_the_models_gains_are_those_of_its_trials():
    trials = (ModelTrial("batch", 3.1e-3, 2.8e-3), ModelTrial("amp", 3.1e-3, 1.55e-3))
    measured = Measurements(epoch(waiting_s=0.0, stepping_s=10.0, busy_s=1.0), CPUS, trials=trials)
    fixes = diagnose(measured).fixes
    assert [fix.kind for fix in fixes[:2]] == ["amp", "batch"]
    assert fixes[0].gain == pytest.approx(2, rel=0.1)
    assert "Trained by itself" not in "\n".join(diagnose(measured).evidence)


def test_a_model_that_is_a_small_part_of_the_step_has_little_to_gain():
    trials = (ModelTrial("amp", 1e-4, 5e-5),)
    measured = Measurements(epoch(waiting_s=0.0, stepping_s=10.0, busy_s=1.0), CPUS, trials=trials)
    diagnosis = diagnose(measured)
    assert max((fix.gain or 0 for fix in diagnosis.fixes if fix.kind == "amp"), default=0.0) < 1.1
    assert "Trained by itself, the model takes" in "\n".join(diagnosis.evidence)


def test_limits_are_told():
    limits = Limits(open_files=1024, shared_memory_bytes=64 << 20)
    text = "\n".join(diagnose(Measurements(epoch(), CPUS, limits=limits)).limits)
    assert "ulimit -n: 1024" in text
    assert "/dev/shm" in text


def test_slow_samples_are_named():
    measured = Measurements(epoch(), CPUS, slow=(SlowSample(17, 2.5),))
    assert "17 (2.50 s)" in "\n".join(diagnose(measured).evidence)


costs = st.builds(
    Costs,
    *[st.floats(1e-5, 1e-1)] * 6,
    cpus=st.floats(0.5, 64),
)


@given(costs, st.integers(1, 32))
def test_another_worker_never_costs_throughput(costs, workers):
    assert costs.rate(workers + 1) >= costs.rate(workers)


@given(costs, st.integers(0, 32), st.sampled_from(["step_s", "receive_s", "cpu_s", "blocked_s", "send_s"]))
def test_what_costs_less_is_never_slower(costs, workers, name):
    cheaper = dataclasses.replace(costs, **{name: getattr(costs, name) / 2})
    assert cheaper.rate(workers) >= costs.rate(workers)


@given(
    st.integers(0, 8),
    st.floats(0, 20),
    st.floats(0, 20),
    st.floats(0, 5),
    st.floats(0, 20),
    st.floats(0, 1),
    st.floats(0.1, 16),
)
def test_every_epoch_has_a_diagnosis(workers, waiting_s, stepping_s, first_wait_s, busy_s, share, cpus):
    times = epoch(workers, waiting_s, stepping_s, first_wait_s, busy_s=busy_s, cpu_s=share * busy_s)
    diagnosis = of_epoch(times, Setting(cpus, 16))
    assert diagnosis.headline
    assert str(diagnosis)
    assert all(fix.gain is None or fix.gain >= 1.05 for fix in diagnosis.fixes)
