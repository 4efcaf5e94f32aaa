"""Judging: the slower of two rates names the side, and trials give the gains."""

from dataclasses import replace

import pytest

import fastload
from fastload.doctor._fixes import trials_to_make, workers_to_try
from fastload.doctor._judge import diagnose
from fastload.doctor._rates import Rates, loading_work, rates_of
from fastload.doctor.findings import DataStorage, LoaderTrial, MachineState, Sampled
from fastload.doctor.findings import TrainingMeasurements as Training
from fastload.loader.clock import LoadTimes
from tests.doctor.situations import make_photos

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
    ],
)
def test_a_slow_step_is_named_after_its_largest_part(step, verdict):
    diagnosis = diagnose(training(wait_s=0.02, step_s=0.08, step=step))
    assert (diagnosis.side, diagnosis.verdict) == ("training step", verdict)


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
    measured = training(2, wait_s=0.002, step_s=0.002, first_wait_s=2.0, trials=(trial(start_s=1.0),))
    assert diagnose(measured).verdict == "little"
    assert diagnose(replace(measured, first_wait_s=0.1)).verdict != "little"


def test_workers_that_start_for_long_do_not_make_a_long_epoch_little():
    measured = training(2, wait_s=0.018, step_s=0.002, first_wait_s=6.0, trials=(trial(start_s=6.0),))
    assert diagnose(measured).verdict == "decoding"
    short = diagnose(training(2, wait_s=0.002, step_s=0.002, first_wait_s=2.0, trials=(trial(start_s=2.0),)))
    assert "100 batches took 2.4 s, starting workers 2 s of it" in short.headline


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

    def test_warm_up_counts_with_and_without_workers(self):
        assert Rates(100.0, 100.0, 0, 8.0, epoch_samples=100.0, warmup_s=2.0).combined() == pytest.approx(
            25.0
        )
        assert Rates(100.0, 100.0, 2, 8.0, epoch_samples=100.0, warmup_s=1.0).combined() == pytest.approx(
            50.0
        )

    def test_the_start_of_workers_counts_once_an_epoch(self):
        assert Rates(100.0, 300.0, 2, 8.0, start_s=1.0, epoch_samples=100.0).combined() == pytest.approx(50.0)


def test_the_gain_of_workers_is_that_of_their_trial():
    measured = training(trials=(trial("workers", 4, 1600.0),))
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
    # 400 samples/s loaded and 1600 trained take turns now: 320 in all.
    assert fix.gain == pytest.approx(1600 / 320)
    assert fix.arguments == {"num_workers": 4}
    assert "num_workers=4)" in fix.action


def test_a_gain_above_ten_is_stated_as_a_bound():
    for rate, gain, text in ((3600.0, 9.0, "9 ×"), (6000.0, 10.0, "at least 10 ×")):
        measured = training(step_s=0.0, wait_s=0.08, trials=(trial("workers", 4, rate),))
        [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
        assert (fix.gain, fix.gain_text) == (pytest.approx(gain), text)


def test_a_gain_names_all_that_it_is_made_of():
    trials = (trial(rate=384.0, start_s=1.6), trial("workers", 0, 190.0))
    measured = training(2, wait_s=0.08, step_s=0.01, epoch_batches=10, trials=trials)
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "no workers")
    # 320 samples take 320/384 + 1.6 s with workers, and 320/190 + 320/3200 s without.
    assert fix.gain == pytest.approx((320 / 384 + 1.6) / (320 / 190 + 0.1))
    assert "the loader gives 190 samples/s with it, 384 samples/s without" in fix.why
    assert "loading and training take turns with it" in fix.why
    assert "it saves 1.6 s of starting workers in each epoch" in fix.why
    assert fix.why.endswith("in all, 179 samples/s instead of 132 samples/s")


def test_workers_that_persist_are_not_started_in_each_epoch_with_a_fix_either():
    trials = (trial(rate=400.0, start_s=5.0), trial("decoder", 2, 800.0, start_s=5.0))
    measured = training(2, persistent_workers=True, epoch_batches=100, trials=trials)
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "decoder")
    assert fix.gain == pytest.approx(2)


def test_a_loader_that_is_created_for_each_epoch_cannot_keep_its_workers():
    measured = training(2, wait_s=0.08, epochs=4, epoch_batches=25, trials=(trial(rate=400.0, start_s=2.0),))
    for is_recreated, arguments in ((False, {"persistent_workers": True}), (True, {})):
        fixes = diagnose(replace(measured, is_recreated=is_recreated)).fixes
        [fix] = (fix for fix in fixes if fix.kind == "persistent workers")
        assert fix.arguments == arguments
        assert fix.action.startswith("create the loader once, before the first epoch") == is_recreated


def test_no_other_number_of_workers_is_tried_for_an_iterable_dataset():
    measured = training(is_iterable=True)
    assert workers_to_try(measured) == []
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
    assert (fix.gain, fix.arguments) == (None, {})
    assert "get_worker_info" in fix.action


def test_compiling_names_the_line_and_the_command(tmp_path):
    measured = training(2, command="train.py --lr 1", trials=(trial(rate=400.0), trial("compile", 2, 1000.0)))
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "compile")
    assert fix.gain == pytest.approx(1000 / 400)
    assert fix.arguments == {"class": "fastload.DataLoader", "compile": True}
    assert "DataLoader(…, compile=True); or, without editing: fastload run train.py --lr 1" in fix.action
    [fix] = (fix for fix in diagnose(replace(measured, is_fastload=True)).fixes if fix.kind == "compile")
    assert (fix.action, fix.arguments) == ("DataLoader(…, compile=True)", {"compile": True})


def test_code_of_fixes_can_be_pasted(tmp_path):
    photos = make_photos(tmp_path / "my photos", 2, 32, 32)
    trials = (trial("decoder", 0, 4000.0), trial("pack", 0, 6000.0, encoding="raw"))
    fixes = {fix.kind: fix.action for fix in diagnose(training(folder=str(photos), trials=trials)).fixes}
    exec(fixes["decoder"].replace("…", "None"), {})
    command, _, code = fixes["pack"].partition(", then ")
    assert command.startswith(f"fastload pack '{photos}' data.fl --encode raw")
    fastload.pack(photos, tmp_path / "data.fl", workers=1)
    exec(code.replace("…", "None").replace("data.fl", str(tmp_path / "data.fl")), {})


def test_the_fewest_workers_that_are_nearly_best_are_advised():
    trials = (trial("workers", 4, 1000.0), trial("workers", 8, 1040.0))
    assert "num_workers=4)" in diagnose(training(trials=trials)).fixes[0].action
    trials = (trial("workers", 4, 1000.0), trial("workers", 8, 1100.0))
    assert "num_workers=8)" in diagnose(training(trials=trials)).fixes[0].action


def test_a_small_gain_is_not_listed():
    for rate, kinds in ((415.0, []), (430.0, ["decoder"])):
        measured = training(loading=seen(decode=1.0), trials=(trial("decoder", 0, rate),))
        assert [fix.kind for fix in diagnose(measured).fixes] == kinds


@pytest.mark.parametrize("kind", ["workers", "compile"])
@pytest.mark.parametrize("other", ["decoder", "pack"])
def test_other_data_have_to_gain_twice_as_much_as_a_line(kind, other):
    for rate, first in ((1200.0, kind), (6000.0, other)):
        trials = (trial(kind, 4, 500.0), trial(other, 0, rate, encoding="raw"))
        assert diagnose(training(trials=trials)).fixes[0].kind == first


def test_untried_fixes_have_no_number_and_come_last():
    fixes = diagnose(training(loading=seen(transform=8.0), trials=(trial("workers", 4, 1600.0),))).fixes
    assert [(fix.kind, fix.gain is None) for fix in fixes] == [("workers", False), ("transform", True)]


@pytest.mark.parametrize(("rate", "kinds"), [(900.0, ["compile"]), (400.0, ["transform"])])
def test_transforms_that_compiling_makes_faster_need_not_be_rewritten(rate, kinds):
    measured = training(loading=seen(transform=8.0), trials=(trial("compile", 0, rate),))
    assert [fix.kind for fix in diagnose(measured).fixes] == kinds


def test_packing_leaves_a_slow_disk_as_slow_as_it_is():
    store = DataStorage(3200, 1 << 40, "fuse")
    measured = training(loading=seen(read=4.0, decode=4.0), cpu_s=4.0, store=store)
    packed = replace(measured, trials=(trial("pack", 0, 1e9, encoding="raw"),))
    [fix] = (fix for fix in diagnose(packed).fixes if fix.kind == "pack")
    assert fix.gain < 2


@pytest.mark.parametrize(
    ("size_bytes", "kind", "kinds"), [(1 << 30, "fuse", ["cache"]), (1 << 30, "ssd", [])]
)
def test_a_cache_is_advised_if_the_kernel_does_not_keep_the_data(size_bytes, kind, kinds):
    machine = replace(MACHINE, available_bytes=8 << 30)
    measured = training(
        loading=seen(read=8.0),
        machine=machine,
        store=DataStorage(3200, size_bytes, kind),
        trials=(trial("cache", 0, 5000.0),),
    )
    assert [fix.kind for fix in diagnose(measured).fixes if fix.kind == "cache"] == kinds


def test_a_training_that_ran_out_of_shared_memory_says_so():
    diagnosis = diagnose(
        training(error="RuntimeError: unable to write to file </torch_1>: No space left on device")
    )
    assert diagnosis.verdict == "transport"
    assert diagnosis.fixes[0].arguments == {"class": "fastload.DataLoader"}


def test_a_training_that_ran_out_of_open_files_says_so():
    diagnosis = diagnose(training(error="OSError: [Errno 24] Too many open files"))
    assert "ulimit -n" in diagnosis.headline
    assert [fix.kind for fix in diagnosis.fixes] == ["open files"]


@pytest.mark.parametrize(("pin_memory", "kinds"), [(False, ["pin"]), (True, [])])
def test_copies_to_the_device_need_page_locked_memory(pin_memory, kinds):
    measured = training(step_s=0.2, step=seen(copy=20.0), device="cuda", pin_memory=pin_memory)
    assert [fix.kind for fix in diagnose(measured).fixes] == kinds
    assert diagnose(measured).verdict == "copy"
    assert diagnose(training(copying_s=5.0, device="cuda")).verdict == "copy"  # by fastload's loader


def test_a_gain_that_the_cpus_limit_names_them():
    fix, *_ = diagnose(training(trials=(trial("workers", 4, 3000.0, cpu_s=0.01),))).fixes
    assert fix.gain == pytest.approx(800 / 320)
    assert "the CPUs suffice for 800 samples/s" in fix.why


def test_half_as_many_workers_that_are_as_fast_save_memory():
    measured = training(8, trials=(trial(workers=8, rate=400.0), trial("workers", 4, 400.0)))
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
    assert (fix.gain, fix.arguments) == (None, {"num_workers": 4})
    assert "4 workers are as fast as 8" in fix.why


def test_a_quota_is_a_limit():
    [limit] = diagnose(training(machine=replace(MACHINE, usable_cpus=2.0))).limits
    assert "2 CPUs' worth of time on 8 CPUs" in limit


def test_time_without_a_free_cpu_explains_a_step_that_is_longer_than_its_rate():
    diagnosis = diagnose(replace(training(step_s=0.01), step_delayed_s=0.5))
    assert "For 5 ms of a step no CPU was free" in diagnosis.evidence[0]


class TestTrials:
    @pytest.mark.parametrize(("workers", "kinds"), [(0, []), (2, ["workers"])])
    def test_too_little_work_may_only_have_too_many_workers(self, workers, kinds):
        measured = training(workers)
        assert trials_to_make(measured, loading_work(measured), "little") == kinds

    def test_a_training_that_hardly_waits_needs_none(self):
        measured = training(wait_s=0.001, step_s=0.1)
        assert trials_to_make(measured, loading_work(measured), "model") == []

    def test_slow_decoding_is_tried_with_workers_compiled_and_packed(self):
        measured, kinds = training(), ["workers", "one line", "files"]
        assert trials_to_make(measured, loading_work(measured), "decoding") == kinds

    @pytest.mark.parametrize(
        ("workers", "cpu_s", "numbers"), [(0, 8.0, [4, 8]), (0, 1.0, [4, 8, 32]), (8, 8.0, [0, 4])]
    )
    def test_numbers_of_workers_to_try_are_near_the_number_of_cpus(self, workers, cpu_s, numbers):
        assert workers_to_try(training(workers, busy_s=8.0, cpu_s=cpu_s)) == numbers
