"""The summary of `fastload run`: it says what is true, and of gains only those that were measured."""

import dataclasses
import time

import pytest
from torch.utils.data import Dataset, default_collate

from fastload.cli import run as run_command
from fastload.loader.clock import EpochTimes
from fastload.loader.replacing import ReplacedLoader
from fastload.ultralytics.collating import PatchedCollate
from tests.cli.test_run import TRAIN, run
from tests.datasets.reference import folder_of


def entry(is_direct=True, is_compiled=True, changes="Digits"):
    return ReplacedLoader("train.py:1", is_direct, "Digits", 1000, is_compiled, changes)


class Busy(Dataset):
    """Samples that take CPU time, and are noted."""

    def __init__(self, cpu_s):
        self.cpu_s = cpu_s
        self.seen = []

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        print("a sample")
        self.seen.append(index)
        end_s = time.process_time() + self.cpu_s
        while time.process_time() < end_s:
            pass
        return index


@dataclasses.dataclass
class Clock:
    """A clock that shows one epoch."""

    batch_size: int = 20
    waiting_s: float = 1.0
    num_workers: int = 0

    def times(self):
        return EpochTimes(self.num_workers, None, self.batch_size, 3, 0.0, self.waiting_s, 0.0, ())


def summary_of(theirs, ours, **times):
    loader = entry()
    loader.latest, loader.clock = (theirs, ours, default_collate), Clock(**times)
    return "\n".join(run_command._summary([loader], (), (), may_measure=True))


def test_gain_is_the_cpu_time_of_entire_batches_that_are_spread_over_the_dataset(capsys):
    theirs, ours = Busy(0.002), Busy(0.0005)
    text = summary_of(theirs, ours)
    ratio = float(text.partition(" times faster")[0].rpartition(" ")[2])
    assert 2 < ratio <= 4.1
    assert theirs.seen == ours.seen
    assert len(ours.seen) == 3 * 20
    assert ours.seen[:20] == sorted(ours.seen[:20])
    assert (ours.seen[0], ours.seen[19]) == (0, 999)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("ours", [Busy(0.0003), Busy(0.00029), Busy(0.0006)])
def test_a_gain_below_a_tenth_is_not_named(ours):
    assert "faster" not in summary_of(Busy(0.0003), ours)


def test_a_slower_dataset_is_said_to_be_one_and_not_to_be_kept():
    text = summary_of(Busy(0.0003), Busy(0.0009))
    assert "compile=False leaves it as it was" in text
    assert "To keep it" not in text
    assert "To keep it" in summary_of(Busy(0.0003), Busy(0.0009), num_workers=2)  # batches travel faster


def test_a_dataset_whose_samples_are_gone_has_no_gain():
    class Gone(Busy):
        def __getitem__(self, index):
            raise FileNotFoundError

    assert "DataLoader of Digits" in summary_of(Gone(0), Busy(0))
    assert "faster" not in summary_of(Busy(0), Gone(0))


@pytest.mark.parametrize(("waiting_s", "rate"), [(1.0, "40"), (400.0, "0.1"), (1e5, "0.0004")])
def test_slow_epochs_have_a_rate(waiting_s, rate):
    assert f" {rate} samples/s" in summary_of(Busy(0), Busy(0), waiting_s=waiting_s)


def test_the_line_that_a_patched_library_needs_is_advised_once_whatever_its_description_says():
    loaders = [
        entry(is_direct=False, changes="fastload.ultralytics"),
        entry(is_direct=False, changes="other"),
    ]
    assert not any("patch" in line for line in run_command._ways_to_keep_it(loaders))
    for loader in loaders:
        loader.to_keep = PatchedCollate.to_keep
    [line] = run_command._ways_to_keep_it(loaders)
    assert line == "  fastload.ultralytics.patch(), before the training"


def test_nothing_is_to_be_kept_where_nothing_is_faster():
    loader = entry(is_compiled=False)
    assert not list(run_command._ways_to_keep_it([loader]))
    loader.clock = Clock(num_workers=2)  # their batches travel faster
    assert list(run_command._ways_to_keep_it([loader])) == ["  from fastload import DataLoader"]


def test_compiling_is_advised_for_a_library_that_makes_the_loader_of_a_compiled_dataset():
    kept = "\n".join(run_command._ways_to_keep_it([entry(is_direct=False), entry()]))
    assert "fastload.compile(dataset), for a library" in kept
    assert "from fastload import DataLoader" in kept
    assert not list(run_command._ways_to_keep_it([entry(is_direct=False, is_compiled=False)]))
    remade = entry()
    remade.is_remade = True
    first, second = run_command._ways_to_keep_it([remade])
    assert first == "  from fastload import DataLoader"
    assert "fastload.compile(dataset), for a library" in second


AGAIN = """
    names = dict(DataLoader=DataLoader)
    prepare = "def prepare(loader): return DataLoader(loader.dataset, num_workers=1)"
    exec(compile(prepare, "library.py", "exec"), names)
    list(names["prepare"](loader))
"""


def test_a_loader_that_a_library_makes_again_is_kept_by_a_compiled_dataset(tmp_path):
    """As Accelerate does, with torch's class."""
    (tmp_path / "train.py").write_text(TRAIN + AGAIN)
    done = run(tmp_path / "train.py", folder_of(tmp_path / "photos", [(60, 85)], 8))
    assert done.stderr.count(": DataLoader of ") == 1, done.stderr
    assert "  from fastload import DataLoader\n  fastload.compile(dataset), for a library" in done.stderr
