"""Fixes: their gains by trials, their order, and the code in their actions."""

from dataclasses import replace

import pytest

import fastload
from fastload.doctor.findings import DataStorage
from fastload.doctor.judging.fixes import diagnose, workers_to_try
from tests.doctor.situations import make_photos
from tests.doctor.test_judge import MACHINE, seen, training, trial


def test_the_gain_of_workers_is_that_of_their_trial():
    measured = training(trials=(trial("workers", 4, 1600.0),))
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
    # 400 samples/s loaded and 1600 trained take turns now: 320 in all.
    assert fix.gain == pytest.approx(1600 / 320)
    assert "num_workers=4)" in fix.action


def test_a_gain_above_ten_is_stated_as_a_bound():
    for rate, gain, text in (
        (3600.0, 9.0, "9 times"),
        (6000.0, 10.0, "at least 10 times"),
    ):
        measured = training(step_s=0.0, wait_s=0.08, trials=(trial("workers", 4, rate),))
        [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
        assert (fix.gain, fix.gain_text) == (pytest.approx(gain), f"{text} as fast as now")


def little(**changes):
    """Epochs of ten batches, 20 ms in all, after workers that took 1.6 s to start."""
    trials = (trial(rate=32_000.0, start_s=1.6), trial("workers", 0, 64_000.0))
    times = {"wait_s": 0.001, "step_s": 0.001, "first_wait_s": 1.6, "batches": 10}
    return training(2, epoch_batches=10, trials=trials, **times, **changes)


def test_a_gain_names_all_that_it_is_made_of():
    diagnosis = diagnose(little())
    assert diagnosis.verdict == "little"
    [fix] = (fix for fix in diagnosis.fixes if fix.kind == "no workers")
    # 320 samples take 10 ms and 1.6 s with workers, and 5 + 10 ms without.
    assert fix.gain == 10.0
    assert "the loader gives 64,000 samples/s with it, 32,000 samples/s without" in fix.why
    assert "loading and training take turns with it" in fix.why
    assert "it saves 1.6 s of starting workers in each epoch" in fix.why
    assert fix.why.endswith("in all, 21,333 samples/s instead of 199 samples/s")


def rehearsed(other_cpus=0.0):
    """Two epochs of ten batches, for most of which workers start, before a training of ninety epochs."""
    trials = (
        trial(rate=384.0, start_s=8.0),
        trial("workers", 0, 300.0),
        trial("workers", 4, 384.0, start_s=9.0),
        trial("compile", 2, 800.0, start_s=8.0),
    )
    times = {"wait_s": 0.04, "step_s": 0.01, "batches": 20, "first_wait_s": 16.0}
    machine = replace(MACHINE, other_cpus=other_cpus)
    return training(2, machine=machine, epochs=2, epoch_batches=10, trials=trials, **times)


def test_the_start_of_workers_in_a_short_rehearsal_does_not_decide():
    assert [fix.kind for fix in diagnose(rehearsed()).fixes] == ["compile", "persistent workers"]
    # Without workers, an epoch of ten batches would be many times as fast.
    assert [fix.kind for fix in diagnose(rehearsed(other_cpus=6.0)).fixes] == [
        "compile",
        "persistent workers",
    ]


@pytest.mark.parametrize(("number", "kinds"), [(4, ["workers"]), (1, []), (0, [])])
def test_fewer_workers_are_not_advised_by_trials_on_a_busy_machine(number, kinds):
    trials = (trial(rate=400.0), trial("workers", number, 1600.0))
    measured = training(2, loading=seen(decode=1.0), trials=trials)
    assert len(diagnose(measured).fixes) == 1
    busy = replace(measured, machine=replace(MACHINE, other_cpus=6.0))
    assert [fix.kind for fix in diagnose(busy).fixes] == kinds


@pytest.mark.parametrize(("loading", "gain"), [({"decode": 8.0}, 2.0), ({"read": 8.0}, 8.0)])
def test_what_slows_workers_down_beside_the_step_does_so_with_a_fix_too(loading, gain):
    # 200 samples/s during the training, and 800 in a trial, perhaps because it found files in memory.
    trials = (trial(rate=800.0), trial("compile", 2, 1600.0))
    measured = training(2, busy_s=16.0, cpu_s=16.0, loading=seen(**loading), step_s=0.001, trials=trials)
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "compile")
    assert fix.gain == pytest.approx(gain)


def test_no_workers_and_workers_that_persist_are_not_both_advised():
    measured = little(epochs=4)
    kinds = [fix.kind for fix in diagnose(measured).fixes]
    assert len({"no workers", "persistent workers"}.intersection(kinds)) == 1


def test_workers_that_persist_are_not_started_in_each_epoch_with_a_fix_either():
    trials = (trial(rate=400.0, start_s=5.0), trial("decoder", 2, 800.0, start_s=5.0))
    measured = training(2, persistent_workers=True, epoch_batches=100, trials=trials)
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "decoder")
    assert fix.gain == pytest.approx(2)


def test_a_loader_that_is_created_for_each_epoch_cannot_keep_its_workers():
    measured = training(2, wait_s=0.08, epochs=4, epoch_batches=25, trials=(trial(rate=400.0, start_s=2.0),))
    for is_recreated in (False, True):
        fixes = diagnose(replace(measured, is_recreated=is_recreated)).fixes
        [fix] = (fix for fix in fixes if fix.kind == "persistent workers")
        assert fix.action.startswith("create the loader once, before the first epoch") == is_recreated


def test_no_other_number_of_workers_is_tried_for_an_iterable_dataset():
    measured = training(is_iterable=True)
    assert workers_to_try(measured) == []
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "workers")
    assert fix.gain is None
    assert "get_worker_info" in fix.action


def test_compiling_names_the_line_and_the_command(tmp_path):
    measured = training(2, command="train.py --lr 1", trials=(trial(rate=400.0), trial("compile", 2, 1000.0)))
    [fix] = (fix for fix in diagnose(measured).fixes if fix.kind == "compile")
    assert fix.gain == pytest.approx(1000 / 400)
    assert (
        "import DataLoader instead of torch.utils.data; or, without editing: fastload run train.py --lr 1"
        in fix.action
    )
    [fix] = (fix for fix in diagnose(replace(measured, is_fastload=True)).fixes if fix.kind == "compile")
    assert fix.action == "leave out compile=False"


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
    assert diagnosis.fixes[0].kind == "loader"


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
    assert fix.gain is None
    assert "4 workers are as fast as 8" in fix.why
