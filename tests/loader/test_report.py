"""The report of an epoch."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import fastload
from fastload.datasets.cache.sharing import can_cache
from fastload.loader.caching import can_be_cached
from fastload.loader.clock import EpochTimes, LoadTimes
from fastload.loader.report import report_of


def epoch(num_workers=2, waiting_s=8.0, stepping_s=2.0, busy_s=10.0, cpu_s=None, collate_s=0.0):
    """An epoch of 100 batches of 32."""
    processes = max(1, num_workers)
    one = LoadTimes(
        100 // processes, 3200 // processes, busy_s, busy_s if cpu_s is None else cpu_s, 0.0, collate_s
    )
    return EpochTimes(
        num_workers=num_workers,
        prefetch_factor=2 if num_workers else None,
        batch_size=32,
        batches=100,
        first_wait_s=0.1,
        waiting_s=waiting_s,
        stepping_s=stepping_s,
        loading=(one,) * processes,
    )


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        (epoch(), "preparing"),
        (epoch(cpu_s=2.0), "storage"),
        (epoch(collate_s=6.0), "transport"),
        (epoch(busy_s=5.0), "transport"),
        (epoch(busy_s=7.0), "preparing"),
        (epoch(waiting_s=1.0, stepping_s=9.0, busy_s=3.0), "model"),
        (epoch(num_workers=0, waiting_s=2.4, stepping_s=7.6, busy_s=2.4), "model"),
        (epoch(waiting_s=0.1, stepping_s=0.04), "little"),
        (epoch(waiting_s=0.1, stepping_s=0.06, busy_s=0.16), "preparing"),
    ],
)
def test_the_longer_side_is_the_verdict(times, verdict):
    assert report_of(times).verdict == verdict


def test_the_report_is_text_for_people():
    text = str(report_of(epoch()))
    assert "each batch takes 101 ms: 80.8 ms waiting for data, 20.2 ms training" in text
    assert "Next: " in text


def test_scalars_are_the_figures_of_the_text():
    scalars = report_of(epoch()).scalars
    assert scalars["wait_s"] == pytest.approx(0.0808, abs=1e-4)
    assert scalars["step_s"] == pytest.approx(0.0202, abs=1e-4)
    assert scalars["waiting_share"] == pytest.approx(0.8)
    assert scalars["samples_per_s"] == report_of(epoch()).samples_per_s > 0


def test_an_epoch_of_one_batch_has_no_rate():
    report = report_of(replace(epoch(), batches=1))
    assert report.scalars["samples_per_s"] == 0
    assert "Only 1 batch of 32 samples was seen." in report.evidence


def test_a_cache_is_advised_where_it_is_possible():
    times = epoch(cpu_s=2.0)
    assert 'cache="auto"' in report_of(times, can_cache=True).next_step
    assert "cache" not in report_of(times).next_step


def test_a_dataset_of_this_library_without_a_cache_can_be_cached(tmp_path):
    assert cv2.imwrite(str(tmp_path / "0.png"), np.zeros((8, 8, 3), np.uint8))
    dataset = fastload.FolderDataset(tmp_path)
    assert can_be_cached(torch.utils.data.Subset(dataset, [0])) == can_cache()
    assert not can_be_cached(torch.arange(64))


def test_a_loader_reports_its_last_epoch():
    loader = fastload.DataLoader(torch.arange(64), 8, num_workers=0)
    with pytest.raises(fastload.OptionError, match="iterate the loader first"):
        loader.report()
    assert len(list(loader)) == 8
    assert "Loaded by the training process" in str(loader.report())


def test_batches_made_on_the_device_are_counted(tmp_path):
    for number in range(24):
        assert cv2.imwrite(str(tmp_path / f"{number}.png"), np.zeros((8, 8, 3), np.uint8))
    dataset = fastload.FolderDataset(tmp_path)
    loader = fastload.DataLoader(dataset, 8, device="cpu", cache="device")
    batches = len(list(loader))
    [times] = loader.last_epoch.loading
    assert (times.batches, times.samples) == (batches, 8 * batches) == (3, 24)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_of_several_tensors_counts_once(workers):
    dataset = TensorDataset(torch.zeros(6, 3, 4, 4), torch.arange(6))
    loader = fastload.DataLoader(dataset, batch_size=None, num_workers=workers)
    list(loader)
    times = loader.last_epoch
    assert (times.samples, sum(process.samples for process in times.loading)) == (6, 6)


def test_whole_batches_of_a_dataset_have_their_own_size():
    pairs = torch.utils.data.BatchSampler(range(6), 2, drop_last=False)
    loader = fastload.DataLoader(
        TensorDataset(torch.zeros(6, 3)), batch_size=None, sampler=pairs, num_workers=0
    )
    list(loader)
    assert loader.last_epoch.samples == 6
