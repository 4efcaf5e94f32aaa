"""GPU utilisation, from readings that are passed in."""

import pytest

from fastload.doctor.watching.machine import GpuWatch


def test_the_share_is_the_mean_of_the_readings():
    readings = iter([0.4, None, 0.6])
    watch = GpuWatch(lambda: next(readings), each_s=0.0)
    for _ in range(3):
        watch.read()
    assert watch.share == pytest.approx(0.5)


def test_readings_are_apart():
    readings = iter([0.4])
    watch = GpuWatch(lambda: next(readings), each_s=60.0)
    for _ in range(3):
        watch.read()
    assert watch.share == 0.4


def failing():
    failing.calls += 1
    raise RuntimeError("cuda driver can't be loaded, is cuda enabled?")


def test_without_a_driver_nothing_is_read_again():
    failing.calls = 0
    watch = GpuWatch(failing)
    for _ in range(2):
        watch.read()
    assert (watch.share, failing.calls) == (0, 1)


def test_without_a_gpu_in_use_the_share_is_zero():
    watch = GpuWatch(lambda: None)
    watch.read()
    assert watch.share == 0
