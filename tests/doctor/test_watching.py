"""What the doctor notes of loaders: whichever way they are iterated, and without a trace in them."""

import contextlib
import os
import resource
import time
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import fastload
from fastload.doctor.activities import Frame
from fastload.doctor.gpu import GpuWatch, Reading, busy_of
from fastload.doctor.loads import LoadLog, noting_fetches
from fastload.doctor.records import slow_samples, with_hidden
from fastload.doctor.streams import GpuTimes
from fastload.doctor.watching import Enough, Watcher
from fastload.system.gpus import Gpu

_FETCH = Frame(torch.utils.data._utils.fetch.__file__, "fetch", 1, "self.dataset[idx]", False)


class Numbers(Dataset):
    def __init__(self, count=24, takes_s=0.0):
        self.count = count
        self.takes_s = takes_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.takes_s)
        return torch.tensor([float(index)])


class Own(DataLoader):
    """A loader whose epochs are generators, and that makes its iterators itself."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.iterator = self._get_iterator()

    def __iter__(self):
        yield from self.iterator


class OwnOfFastload(fastload.DataLoader):
    def __iter__(self):
        yield from self._get_iterator()


@pytest.fixture
def watch(tmp_path):
    @contextlib.contextmanager
    def watching(**options):
        watcher = Watcher(tmp_path, **options)
        with watcher.watching():
            yield watcher

    return watching


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "kind",
    [DataLoader, Own, OwnOfFastload, fastload.DataLoader],
    ids=["torch's", "a subclass's", "a subclass of fastload's", "fastload's"],
)
def test_a_loader_is_watched_however_it_is_iterated(watch, kind, workers):
    with watch() as watcher:
        values = torch.cat(list(kind(Numbers(), 4, num_workers=workers))).flatten().tolist()
    [record] = watcher.records
    assert values == list(range(24))
    assert (record.epochs, record.batches, record.samples) == (1, 6, 24)
    assert record.loader["is_fastload"] == issubclass(kind, fastload.DataLoader)
    if workers:
        assert sum(log.samples for log in watcher.logs_of(record)) == 24


def test_workers_of_a_forkserver_are_each_their_own_loaders(watch):
    """All of them have the environment that the server was started in."""
    loaders = [
        DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="forkserver") for _ in range(2)
    ]
    with watch() as watcher:
        for loader in loaders:
            list(loader)
    assert [[log.samples for log in watcher.logs_of(record)] for record in watcher.records] == [[24], [24]]


def test_persistent_workers_are_one_loaders_in_all_epochs(watch):
    with watch() as watcher:
        loader = DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True)
        for _ in range(3):
            assert len(list(loader)) == 6
        del loader
    [record] = watcher.records
    assert (record.epochs, record.batches) == (3, 18)
    assert [log.samples for log in watcher.logs_of(record)] == [72]


def test_torchs_methods_are_put_back(watch):
    kinds = (_BaseDataLoaderIter, DataLoader, fastload.DataLoader)
    before = [dict(vars(kind)) for kind in kinds]
    with watch():
        assert [dict(vars(kind)) for kind in kinds] != before
    assert [dict(vars(kind)) for kind in kinds] == before


def test_no_file_is_left_open_by_a_batch():
    log = LoadLog()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    with noting_fetches(lambda: log, lambda: 0.0):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
            assert len(list(DataLoader(Numbers(100)))) == 100
            with open(os.devnull):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert log.batches == 100


def test_looking_is_neither_the_loaders_work_nor_that_of_threads_that_help():
    logs = LoadLog(), LoadLog()
    with noting_fetches(lambda: logs[0], lambda: 0.0):
        list(DataLoader(Numbers(100)))
    with noting_fetches(lambda: logs[1], time.process_time):
        list(DataLoader(Numbers(100)))
    assert logs[0].process_cpu_s > 0
    # The clock that looking is said to have taken goes on between two readings of it.
    assert logs[1].process_cpu_s < 0.1 * logs[0].process_cpu_s
    assert logs[1].helping_cpu_s == 0


def test_what_comes_after_a_look_at_a_batch_is_no_step(watch):
    with watch(seconds=0.2) as watcher:
        loader = DataLoader(Numbers(), 4)
        next(iter(loader))
        time.sleep(0.3)
        # The look does not begin the time that was asked for either.
        with contextlib.suppress(Enough):
            list(loader)
        time.sleep(0.3)
    [record] = watcher.records
    assert record.batches == 7
    assert record.stepping_s < 0.2
    assert not watcher.was_cut


def test_a_training_that_is_left_has_no_step_after_it(watch):
    with watch() as watcher:
        for _ in DataLoader(Numbers(), 4, num_workers=1):
            time.sleep(0.05)
            break
        time.sleep(0.3)
    [record] = watcher.records
    assert 0.05 <= record.stepping_s < 0.25


def test_a_cut_is_remembered_whatever_becomes_of_the_exception(watch):
    with watch(steps=3) as watcher, contextlib.suppress(Enough):
        list(DataLoader(Numbers(), 4))
    assert watcher.was_cut


def test_loaders_that_are_zipped_share_their_steps(watch):
    with watch() as watcher:
        light, slow = DataLoader(Numbers(), 4), DataLoader(Numbers(takes_s=0.005), 4)
        for _ in zip(light, slow, strict=True):
            time.sleep(0.02)
    first, second = watcher.records
    # To the light loader, the other's waits are time that it has for its next batch.
    assert first.stepping_s >= 6 * 0.02 + 6 * 4 * 0.005
    assert first.total_s < 0.1
    assert second.stepping_s >= 6 * 0.02
    assert second.total_s >= 6 * 0.02 + 6 * 4 * 0.005


def test_a_validation_is_no_step_of_the_training(watch):
    with watch() as watcher:
        train, test = DataLoader(Numbers(), 4), DataLoader(Numbers(4, takes_s=0.02), 4)
        for _ in train:
            list(test)
    training, testing = watcher.records
    assert testing.first_wait_s > 0.4
    assert training.stepping_s < 0.2


class Stream(IterableDataset):
    def __len__(self):
        return 2

    def __iter__(self):
        yield from range(4)


def test_asking_for_its_length_leaves_no_trace_in_a_loader(watch):
    loader = DataLoader(Stream(), 1)
    with warnings.catch_warnings(), watch() as watcher:
        warnings.simplefilter("error")
        assert sum(len(batch) for batch in loader) == 4
    assert watcher.records[0].loader["epoch_batches"] == 2
    assert loader._IterableDataset_len_called is None


def test_a_sample_is_not_slow_for_being_made_in_many_epochs():
    log = LoadLog()
    for _ in range(20):
        for index in range(4):
            log.notice([_FETCH], 0.02, index)
        log.note_batch(0.08, 4)
    assert slow_samples([log]) == ()
    for _ in range(30):
        log.notice([_FETCH], 0.02, 2)
    [slow] = slow_samples([log])
    assert slow.index == 2
    assert slow.seconds == pytest.approx(0.6)


class Fake:
    """A mark that a GPU comes by at a time that is given, in seconds."""

    def __init__(self, at, is_passed=True):
        self.at = at
        self.is_passed = is_passed

    def query(self):
        return self.is_passed

    def elapsed_time(self, later):
        return (later.at - self.at) * 1e3


class TestGpuTimes:
    def test_a_wait_in_which_the_gpu_is_idle_is_a_wait(self):
        marks = iter([Fake(1.0), Fake(1.4)])
        times = GpuTimes(lambda: next(marks))
        times.ask()
        times.hand(handed_at=1.4, wait_s=0.4)
        assert times.busy_s == pytest.approx(0)
        assert times.behind_s == 0

    def test_a_wait_in_which_the_gpu_computes_is_the_steps_time(self):
        marks = iter([Fake(0.0), Fake(0.0), Fake(3.0, is_passed=False), Fake(3.1)])
        times = GpuTimes(lambda: next(marks))
        times.ask()
        times.hand(handed_at=0.0, wait_s=0.0)
        times.ask()
        times.hand(handed_at=1.4, wait_s=0.4)
        assert times.busy_s == pytest.approx(0.3)
        assert times.behind_s == pytest.approx(1.7)

    def test_what_the_gpu_has_not_come_by_is_read_later(self):
        late = Fake(1.0, is_passed=False)
        marks = iter([Fake(1.0), late, Fake(2.0), Fake(2.0)])
        times = GpuTimes(lambda: next(marks))
        times.ask()
        times.hand(handed_at=1.0, wait_s=0.5)
        assert times.busy_s == 0
        late.is_passed = True
        times.ask()
        times.hand(handed_at=2.0, wait_s=0.0)
        assert times.busy_s == pytest.approx(0.5)

    def test_marks_that_fail_are_given_up(self):
        asked = []

        def fail():
            asked.append(1)
            raise RuntimeError("no event")

        times = GpuTimes(fail)
        for _ in range(3):
            times.ask()
            times.hand(handed_at=1.0, wait_s=0.5)
        assert times.busy_s == 0
        assert len(asked) == 1

    def test_without_a_gpu_nothing_is_marked(self):
        times = GpuTimes()
        times.ask()
        times.hand(handed_at=1.0, wait_s=0.5)
        assert times.busy_s == times.behind_s == 0


def test_copies_that_wait_for_earlier_steps_are_the_models():
    seen = {("copy", "train.py:3"): 1.0, ("model", "train.py:3"): 2.0, ("receive", ""): 0.5}
    assert with_hidden(seen, copying_s=0.2, behind_s=0.75) == {
        ("copy", "train.py:3"): pytest.approx(0.25),
        ("model", "train.py:3"): pytest.approx(2.75),
        ("receive", ""): pytest.approx(0.3),
    }


def gpu(index, utilization):
    return Gpu(index, "NVIDIA T4", 0, 0, utilization, f"GPU-{index}")


class TestBusy:
    READINGS = tuple(
        Reading(float(at), (gpu(0, 0.9), gpu(1, busy))) for at, busy in enumerate([0.0, 0.4, 0.6, 0.0])
    )

    def test_the_trainings_own_gpu_counts_while_it_trains(self):
        assert busy_of(self.READINGS, (0.5, 2.5), "GPU-1") == (0.4, 0.6)

    def test_the_busiest_counts_where_it_is_not_known(self):
        assert busy_of(self.READINGS, (0.5, 2.5), "") == (0.9, 0.9)

    def test_without_readings_there_is_nothing_to_say(self):
        assert busy_of(self.READINGS, (7.0, 7.0), "") == ()
        assert busy_of((), (0.0, 9.0), "GPU-1") == ()

    def test_one_session_serves_all_readings(self):
        opened = []

        @contextlib.contextmanager
        def session():
            opened.append(1)
            yield lambda: (gpu(0, 0.5),)
            opened.append(-1)

        watch = GpuWatch(session, each_s=0.001)
        began = time.perf_counter()
        with watch.watching():
            time.sleep(0.1)
        assert opened == [1, -1]
        assert len(watch.busy((began, time.perf_counter()), "")) > 1
