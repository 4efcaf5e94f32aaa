"""GPU utilisation, from readings that are passed in."""

import time

import pytest

from fastload.doctor._machine import gpu_share, reading_gpu

READINGS = list(enumerate([0.0, 0.4, 0.6]))


def test_a_gpu_counts_while_the_training_lasts():
    assert gpu_share(READINGS, (0.5, 2.5)) == pytest.approx(0.5)
    assert gpu_share(READINGS, (2.0, 3.0)) == pytest.approx(0.6)


def test_without_readings_the_share_is_zero():
    assert gpu_share(READINGS, (7.0, 7.0)) == 0
    assert gpu_share([], (0.0, 9.0)) == 0


def test_a_gpu_is_read_until_the_training_ends():
    began = time.perf_counter()
    with reading_gpu(lambda: 0.5, each_s=0.001) as readings:
        time.sleep(0.1)
    assert len(readings) > 1
    assert gpu_share(readings, (began, time.perf_counter())) == 0.5


def failing():
    raise RuntimeError("cuda driver can't be loaded, is cuda enabled?")


@pytest.mark.parametrize("read", [failing, lambda: None], ids=["no driver", "no GPU in use"])
def test_without_a_gpu_nothing_is_read(read):
    with reading_gpu(read, each_s=0.001) as readings:
        time.sleep(0.01)
    assert readings == []
