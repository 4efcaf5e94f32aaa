"""GPU utilisation, from readings that are passed in."""

import contextlib
import time

import pytest

from fastload.doctor._machine import gpu_share, reading_gpus
from fastload.system.gpus import Gpu


def gpus(first, second):
    return Gpu("GPU-0", first), Gpu("GPU-1", second)


READINGS = [(float(at), gpus(0.9, busy)) for at, busy in enumerate([0.0, 0.4, 0.6, None])]


def test_the_trainings_own_gpu_counts_while_it_trains():
    assert gpu_share(READINGS, (0.5, 2.5), "GPU-1") == pytest.approx(0.5)
    assert gpu_share(READINGS, (2.0, 3.0), "GPU-1") == pytest.approx(0.3)


def test_no_other_gpu_counts():
    assert gpu_share(READINGS, (0.5, 2.5), "") == 0
    assert gpu_share(READINGS, (0.5, 2.5), "GPU-7") == 0


def test_without_readings_the_share_is_zero():
    assert gpu_share(READINGS, (7.0, 7.0), "GPU-1") == 0
    assert gpu_share([], (0.0, 9.0), "GPU-1") == 0


def test_one_session_serves_all_readings():
    opened = []

    @contextlib.contextmanager
    def session():
        opened.append(1)
        yield lambda: gpus(0.5, 0.5)
        opened.append(-1)

    began = time.perf_counter()
    with reading_gpus(session, each_s=0.001) as readings:
        time.sleep(0.1)
    assert opened == [1, -1]
    assert len(readings) > 1
    assert gpu_share(readings, (began, time.perf_counter()), "GPU-0") == 0.5
