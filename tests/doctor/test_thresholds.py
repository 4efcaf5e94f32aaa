"""Each threshold of the doctor is needed: changing it by half changes a diagnosis."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from fastload.doctor import examine, folder, trials
from fastload.doctor.findings import DataStorage, MachineState, Sampled
from fastload.doctor.judging import evidence, fixes, judge, step_changes
from fastload.doctor.judging.fixes import diagnose, workers_to_try
from fastload.doctor.judging.judge import rates_of
from fastload.doctor.watching import record
from fastload.doctor.watching.step_watch import StepWatch
from fastload.loader import report as shared_rules
from tests.doctor.test_judge import MACHINE, changes_to_try, seen, training, trial


def verdicts(*runs):
    return [diagnose(measured).verdict for measured in runs]


def lasting(seconds):
    """A training run of this many seconds in all."""
    return training(wait_s=0.009 * seconds, step_s=0.001 * seconds)


def of_workers(rate):
    """Two workers that make 711 samples/s, in a loader that gives this many without training."""
    return training(2, wait_s=0.08, busy_s=4.5, trials=(trial(rate=rate),))


def starting(seconds, wait_s=0.0009):
    """100 batches after workers that took this many seconds to start."""
    started = (trial(start_s=seconds, rate=9000.0),)
    return training(2, wait_s=wait_s, step_s=0.001, first_wait_s=seconds, trials=started)


def on_machine(num_workers=0, **changes):
    measured = {name: changes.pop(name) for name in list(changes) if name not in MachineState.__slots__}
    return training(num_workers, machine=replace(MACHINE, **changes), **measured)


def reading(share):
    """A training run that reads for this share of its loading, from a disk that is slow enough to matter."""
    store = DataStorage(3200, 1 << 40, "fuse")
    return training(loading=seen(read=share, decode=1 - share), store=store)


def cached(size_bytes):
    """The actions against a slow disk with this much data, and 8 GiB of memory."""
    measured = training(
        loading=seen(read=8.0),
        machine=replace(MACHINE, available_bytes=8 << 30),
        store=DataStorage(3200, size_bytes, "fuse"),
        trials=(trial("cache", 0, 5000.0),),
    )
    return [fix.action for fix in diagnose(measured).fixes]


def in_places(*seconds):
    """The evidence for lines of the training step that took these seconds."""
    lines = tuple(Sampled("model", f"train.py:{number}", taken) for number, taken in enumerate(seconds))
    return diagnose(training(step=lines)).evidence


def doubts(*runs):
    return [diagnose(measured).doubts for measured in runs]


def tried(samples=8, watched_s=0.0):
    """Trials of a loader that was watched for some time."""
    settings = record.LoaderSettings(DataLoader(range(samples), 2))
    return trials.Trials(settings, 0, Path("unused"), watched_s)


def batches_of_a_trial():
    """The batches that a trial takes, however short it is."""
    made = tried(20)
    made._trial_s = 0.0
    return made._measured()[1]


def linked(count, size_bytes):
    """The number of files that are packed for a trial."""
    with tempfile.TemporaryDirectory() as root:
        paths = [Path(root, f"{number}.jpg") for number in range(count)]
        for path in paths:
            with path.open("wb") as file:
                file.truncate(size_bytes)
        return len(list(trials.link_files([*map(str, paths)], Path(root, "files")).iterdir()))


def is_second_tried(wait_s):
    """True if changes are tried on a second loader that takes this many seconds of a hundred."""
    loaders = []
    for seconds in (100 - wait_s, wait_s):
        watched = record.LoaderRecord("", DataLoader(range(4)), (), lambda: (0.0,) * 5, StepWatch())
        watched.waiting_s = seconds
        loaders.append(examine.ExaminedLoader("", training(wait_s=seconds / 99), watched))
    examine._add_trials(loaders, Path("unused"))
    return loaders[1].trials is not None


def with_samples(count):
    """The number of samples that are read before a dataset is watched, and that of a batch."""
    found, batch_size, _ = folder._readable(range(count), range(count))
    return len(found), batch_size


# Of a constant that decides several things, the name is followed by the one in question.
SITUATIONS = {
    "WARMUP_RATIO": lambda: [record.warmup_steps([first, 0.1, 0.1, 0.1]) for first in (0.25, 0.4)],
    "_EARLY_STEPS": lambda: record.warmup_steps([9.0] * 20 + [0.1] * 40),
    "_MOST_STORED": lambda: [record.warmup_steps([9.0] + [0.1] * most) for most in (3000, 5000)],
    "MOST_TRIAL_S": lambda: tried(watched_s=100.0)._trial_s,
    "LEAST_TRIAL_S": lambda: tried(watched_s=0.1)._trial_s,
    "_LEAST_BATCHES": batches_of_a_trial,
    "_MOST_BATCHES": lambda: len(tried(1000)._batches),
    "_MOST_FILES": lambda: linked(100, 1),
    "_MOST_BYTES": lambda: linked(30, 1 << 20),
    "_LONG_WAITS": lambda: [is_second_tried(wait_s) for wait_s in (15.0, 25.0)],
    "_MOST_SAMPLES": lambda: with_samples(10_000)[0],
    "_LARGEST_BATCH": lambda: with_samples(10_000)[1],
    "MAJORITY, copying": lambda: verdicts(
        *(training(device="cuda", copying_s=each * 99 * 0.08) for each in (0.4, 0.6))
    ),
    "MAJORITY, torch's loop": lambda: [
        len(judge.attributed((Sampled("decode", "a", each), Sampled("transform", "", 1 - each))))
        for each in (0.4, 0.6)
    ],
    "MAJORITY, blocked loading": lambda: [workers_to_try(training(cpu_s=each)) for each in (3.0, 5.0)],
    "MAJORITY, shared memory": lambda: [
        diagnose(on_machine(2, batch_bytes=each << 20, shared_memory_bytes=256 << 20)).limits
        for each in (26, 38)
    ],
    "LEAST_SHARE, starting workers": lambda: [
        diagnose(starting(each, wait_s=0.096)).evidence for each in (0.4, 0.6)
    ],
    "BALANCED": lambda: [diagnose(training(wait_s=0.05, step_s=each)).side for each in (0.052, 0.06)],
    "LEAST_S": lambda: verdicts(lasting(0.18), lasting(0.3)),
    "MOST_STARTING": lambda: verdicts(starting(0.1), starting(0.16)),
    "LEAST_S, starting workers": lambda: verdicts(starting(2.0, wait_s=0.001), starting(2.0, wait_s=0.002)),
    "LEAST_BUSY": lambda: verdicts(of_workers(400.0), of_workers(550.0)),
    "GPU_BUSY": lambda: verdicts(*(training(device="cuda", gpu_share=each) for each in (0.85, 0.95))),
    "LEAST_GAIN": lambda: [
        len(diagnose(training(loading=seen(decode=1.0), trials=(trial("decoder", 0, rate),))).fixes)
        for rate in (415.0, 430.0)
    ],
    "MOST_GAIN": lambda: [
        fix.gain for fix in diagnose(training(step_s=0.0, trials=(trial("workers", 4, 9000.0),))).fixes
    ],
    "LEAST_SWAPPED": lambda: [diagnose(on_machine(swapped_bytes=each << 20)).limits for each in (48, 80)],
    "NEARLY_FULL": lambda: [
        diagnose(on_machine(memory_bytes=1000, available_bytes=each)).limits for each in (80, 120)
    ],
    "LEAST_GROWN": lambda: [
        diagnose(training(epoch_memory_bytes=(1, 1000, 1000 + each, 1000 + 2 * each))).limits
        for each in (8, 12)
    ],
    "EFFORT": lambda: [
        diagnose(training(trials=(trial("compile", 0, 500.0), trial("decoder", 0, rate)))).fixes[0].kind
        for rate in (800.0, 1600.0)
    ],
    "ENOUGH": lambda: [
        diagnose(training(trials=(trial("workers", 4, 1000.0), trial("workers", 8, rate)))).fixes[0].action
        for rate in (1040.0, 1100.0)
    ],
    "MOST_OF_MEMORY": lambda: [cached(4 << 30), cached(7 << 30)],
    "MOST_OF_OTHERS": lambda: doubts(on_machine(other_cpus=1.2), on_machine(other_cpus=2.0)),
    "SMALL_SHARED_MEMORY": lambda: [
        diagnose(on_machine(shared_memory_bytes=each << 20)).limits for each in (64, 80)
    ],
    "FEW_OPEN_FILES": lambda: [diagnose(on_machine(open_files=each)).limits for each in (3000, 5000)],
    "STORAGE_SHARE": lambda: [
        (changes_to_try(each), diagnose(each).evidence) for each in (reading(0.1), reading(0.2))
    ],
    "MOST_PLACES": lambda: in_places(5, 4, 3, 2),
    "LEAST_SHARE, lines": lambda: [in_places(96, 4), in_places(94, 6)],
    "COLDER": lambda: [
        rates_of(training(2, wait_s=0.08, busy_s=9.0, trials=(trial(rate=each),))).loading
        for each in (430.0, 711.0)
    ],
    "_FEW_STEPS": lambda: doubts(*(training(steps=each) for each in (3, 6))),
}
MODULES = (shared_rules, judge, step_changes, fixes, evidence, record, trials, examine, folder)

# They bound what an examination takes or fetches, and are not compared with what is measured.
LIMITS = {
    *("_MOST_S", "_TIMEOUT_S", "_MOST_WAIT_S", "_WATCHED_S", "_CHECKED_S", "_BATCH_S"),
    *("WITHOUT_END", "_MOST_BATCH", "_RANGES", "_RANGE_BYTES"),
}


@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_threshold_changed_by_half_changes_a_diagnosis(situation, factor, monkeypatch):
    expected, name = SITUATIONS[situation](), situation.partition(",")[0]
    for module in MODULES:
        if hasattr(module, name):
            value = getattr(module, name) * factor
            monkeypatch.setattr(module, name, int(value) if type(getattr(module, name)) is int else value)
    try:
        assert SITUATIONS[situation]() != expected
    except ValueError:  # no number of workers is enough
        assert name == "ENOUGH"


def test_every_threshold_has_a_situation():
    constants = {
        name
        for module in MODULES
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, (int, float))
    }
    assert constants == {name.partition(",")[0] for name in SITUATIONS} | LIMITS
