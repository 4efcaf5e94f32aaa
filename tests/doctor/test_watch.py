"""Watching loaders, however they are iterated, without changing them."""

import contextlib
import os
import resource
import time
import warnings
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import fastload
from fastload.doctor.watching.machine import BusyWatch
from fastload.doctor.watching.record import LoaderRecord, warmup_steps
from fastload.doctor.watching.step_watch import StepWatch
from fastload.doctor.watching.watch import Enough, Watcher
from fastload.doctor.watching.workers import WorkerLog, noting_fetches
from tests.loader.tuning.deciding import trying


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
    """A loader whose epochs are generators, and which creates its own iterators."""

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
    assert (record.epochs, record.batches) == (1, 6)
    measured = record.measured(watcher.logs_of(record), BusyWatch().state())
    assert measured.is_fastload == issubclass(kind, fastload.DataLoader)
    assert measured.batch_size == 4
    assert measured.work.samples == 24


def test_a_tuned_loader_is_measured_with_its_final_workers(watch):
    loader = trying(fastload.DataLoader(Numbers(4000, takes_s=0.001), 4), (2, 2))
    with watch() as watcher:
        list(loader)
    [record] = watcher.records
    measured = record.measured(watcher.logs_of(record), BusyWatch().state())
    assert measured.num_workers == 2
    assert 0 < measured.batches < 1000
    assert measured.work.samples > 0


def test_workers_of_a_forkserver_belong_to_their_own_loader(watch):
    """All of them have the environment in which the server was started."""
    loaders = [
        DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context="forkserver") for _ in range(2)
    ]
    with watch() as watcher:
        for loader in loaders:
            list(loader)
    logs = [watcher.logs_of(record) for record in watcher.records]
    assert [[log.times.samples for log in each] for each in logs] == [[24], [24]]


def test_persistent_workers_belong_to_one_loader_in_all_epochs(watch):
    with watch() as watcher:
        loader = DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True)
        for _ in range(3):
            assert len(list(loader)) == 6
        del loader
    [record] = watcher.records
    assert (record.epochs, record.batches) == (3, 18)
    assert [log.times.samples for log in watcher.logs_of(record)] == [72]


def test_loaders_recreated_for_each_epoch_count_as_one(watch):
    dataset = Numbers()
    with watch() as watcher:
        for _ in range(3):
            list(DataLoader(dataset, 4))
        several = [DataLoader(dataset, 4), DataLoader(dataset, 4)]
        for loader in several:
            list(loader)
    assert [record.epochs for record in watcher.records] == [4, 1]


def test_loaders_recreated_with_their_data_count_as_one(watch):
    with watch() as watcher:
        for _ in range(3):
            list(DataLoader(Numbers(), 4, persistent_workers=True, num_workers=1))
        list(DataLoader(Numbers(), 4))
        for dataset in (range(8), range(12)):
            list(DataLoader(dataset, 4))
    assert [record.epochs for record in watcher.records] == [3, 1, 1, 1]
    measured = watcher.records[0].measured([], BusyWatch().state())
    assert (measured.is_recreated, measured.persistent_workers) == (True, False)


def test_the_busiest_worker_is_another_process_in_each_epoch():
    loader = DataLoader(Numbers(), 4, num_workers=2)
    record = LoaderRecord("loader0", loader, (), lambda: (0.0, 0.0, 0, 0.0, 0.0), StepWatch())
    logs = [WorkerLog() for _ in range(6)]
    for log, busy_s in zip(logs, (2.0, 1.0, 2.0, 1.0, 2.0, 1.0), strict=True):
        log.times = replace(log.times, busy_s=busy_s)
    assert record.measured(logs, BusyWatch().state()).busiest_s == 6.0
    assert record.measured(logs[:2], BusyWatch().state()).busiest_s == 2.0


def test_torchs_methods_are_restored(watch):
    kinds = (_BaseDataLoaderIter, DataLoader, fastload.DataLoader)
    before = [dict(vars(kind)) for kind in kinds]
    with watch():
        assert [dict(vars(kind)) for kind in kinds] != before
    assert [dict(vars(kind)) for kind in kinds] == before


def test_no_file_is_left_open_by_a_batch():
    log = WorkerLog()
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
    assert log.times.batches == 100


def test_time_after_an_iterator_is_dropped_is_no_step(watch):
    with watch(seconds=0.2) as watcher:
        loader = DataLoader(Numbers(), 4)
        next(iter(loader))
        time.sleep(0.3)
        # Nor does it start the time of `seconds`.
        with contextlib.suppress(Enough):
            list(loader)
        time.sleep(0.3)
    [record] = watcher.records
    assert record.batches == 7
    assert record.stepping_s < 0.2
    assert not watcher.was_cut


def test_time_after_an_epoch_is_left_is_no_step(watch):
    with watch() as watcher:
        for _ in DataLoader(Numbers(), 4, num_workers=1):
            time.sleep(0.05)
            break
        time.sleep(0.3)
    [record] = watcher.records
    assert 0.05 <= record.stepping_s < 0.25


def test_an_early_end_is_recorded_whatever_becomes_of_the_exception(watch):
    with watch(steps=3) as watcher, contextlib.suppress(Enough):
        list(DataLoader(Numbers(), 4))
    assert watcher.was_cut


def test_loaders_that_are_zipped_share_their_steps(watch):
    with watch() as watcher:
        light, slow = DataLoader(Numbers(), 4), DataLoader(Numbers(takes_s=0.005), 4)
        for _ in zip(light, slow, strict=True):
            time.sleep(0.02)
    first, second = watcher.records
    # For the light loader, the other loader's waits are time to make its next batch.
    assert first.stepping_s >= 6 * 0.02 + 6 * 4 * 0.005
    assert first.total_s + 0.1 < second.total_s
    assert second.stepping_s >= 6 * 0.02
    assert second.total_s >= 6 * 0.02 + 6 * 4 * 0.005


def test_validation_is_no_step_of_the_training(watch):
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


def test_an_iterable_dataset_is_not_asked_for_its_length(watch):
    loader = DataLoader(Stream(), 1)
    with warnings.catch_warnings(), watch():
        warnings.simplefilter("error")
        assert sum(len(batch) for batch in loader) == 4
    assert loader._IterableDataset_len_called is None


@pytest.mark.parametrize(
    ("steps_s", "count"),
    [
        ([30.0, 0.1, 0.1, 0.1], 1),
        ([30.0, 9.0, 0.1, 0.1, 0.1, 0.1], 2),
        ([30.0, 0.1], 1),
        ([0.2, 0.1, 0.1, 0.1], 0),
        ([0.1, 0.1, 30.0, 0.1], 0),
        ([3.0, 3.0, 0.1, 6.0, *[0.1] * 8], 4),
        ([0.1, 0.1, 0.5, *[0.1, 0.1, 0.4] * 4], 0),
        ([30.0], 0),
        ([], 0),
    ],
)
def test_long_first_steps_are_warm_up(steps_s, count):
    assert warmup_steps(steps_s) == count


class Boxes(Dataset):
    """Samples have different numbers of boxes."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.zeros(index + 3, 4), index


def test_the_batch_size_is_the_samplers_whatever_the_batches_contain(watch):
    with watch() as watcher:
        list(DataLoader(Boxes(), 2, collate_fn=lambda samples: torch.cat([boxes for boxes, _ in samples])))
        list(DataLoader(Boxes(), batch_sampler=[[0, 1, 2, 3], [4, 5, 6, 7]], collate_fn=list))
        list(DataLoader(Boxes(), batch_size=None))
    state = BusyWatch().state()
    measured = [record.measured(watcher.logs_of(record), state) for record in watcher.records]
    assert [each.batch_size for each in measured] == [2, 4, None]
    assert measured[2].unit == "batches"


def test_training_and_evaluation_are_told_apart(watch):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch() as watcher:
        for batch in DataLoader(Numbers(), 4):
            model(batch).sum().backward()
            optimizer.step()
        with torch.no_grad():
            for batch in DataLoader(Numbers(), 4):
                model(batch)
    assert [record.role() for record in watcher.records] == ["training", "evaluation"]


def test_zipped_loaders_are_all_trained_on(watch):
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
    with watch() as watcher:
        for _ in zip(DataLoader(Numbers(), 4), DataLoader(Numbers(), 4), strict=True):
            optimizer.step()
    assert [record.role() for record in watcher.records] == ["training", "training"]


def test_warm_up_is_left_out_of_the_step(watch):
    with watch() as watcher:
        for number, _ in enumerate(DataLoader(Numbers(), 4)):
            time.sleep(0.3 if number == 0 else 0.02)
    [record] = watcher.records
    measured = record.measured([], BusyWatch().state())
    assert (measured.warmup_steps, measured.steps) == (1, 5)
    assert measured.warmup_s >= 0.3 > measured.stepping_s >= 0.1


def test_a_batch_is_freed_in_a_wait_rather_than_in_a_step(watch):
    class Batch:
        def __del__(self):
            freed.append(watcher.records[0].phase)

    freed = []
    with watch() as watcher:
        for _ in DataLoader(Numbers(24), batch_size=4, collate_fn=lambda samples: Batch()):
            pass
        assert len(freed) >= 4
    assert set(freed[:4]) == {"waiting"}
