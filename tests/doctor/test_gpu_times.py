"""GPU activity, told from marks and readings that are passed in."""

import contextlib
import time

import pytest

from fastload.doctor.gpu import GpuTimes, GpuWatch
from fastload.doctor.record import with_hidden
from fastload.system.gpus import Gpu


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
    seen = {("copy", "train.py:3"): 1.0, ("model", "train.py:3"): 2.0}
    assert with_hidden(seen, behind_s=0.75) == {
        ("copy", "train.py:3"): pytest.approx(0.25),
        ("model", "train.py:3"): pytest.approx(2.75),
    }


def gpu(index, utilization):
    return Gpu(index, "NVIDIA T4", 0, 0, utilization, f"GPU-{index}")


class TestBusy:
    READINGS = tuple((float(at), (gpu(0, 0.9), gpu(1, busy))) for at, busy in enumerate([0.0, 0.4, 0.6, 0.0]))

    def busy(self, readings, span, uuid):
        watch = GpuWatch()
        watch._readings.extend(readings)
        return watch.busy(span, uuid)

    def test_the_trainings_own_gpu_counts_while_it_trains(self):
        assert self.busy(self.READINGS, (0.5, 2.5), "GPU-1") == (0.4, 0.6)

    def test_the_busiest_counts_where_it_is_not_known(self):
        assert self.busy(self.READINGS, (0.5, 2.5), "") == (0.9, 0.9)

    def test_without_readings_there_is_nothing(self):
        assert self.busy(self.READINGS, (7.0, 7.0), "") == ()
        assert self.busy((), (0.0, 9.0), "GPU-1") == ()

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
