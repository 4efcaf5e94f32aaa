"""GPU utilisation, from readings that are passed in."""

import contextlib
import time

from fastload.doctor._machine import GpuWatch
from fastload.system.gpus import Gpu


def gpu(index, utilization):
    return Gpu(f"GPU-{index}", utilization)


class TestBusy:
    READINGS = tuple((float(at), (gpu(0, 0.9), gpu(1, busy))) for at, busy in enumerate([0.0, 0.4, 0.6, 0.0]))

    def busy(self, readings, span, uuid):
        watch = GpuWatch()
        watch._readings.extend(readings)
        return watch.busy(span, uuid)

    def test_the_trainings_own_gpu_counts_while_it_trains(self):
        assert self.busy(self.READINGS, (0.5, 2.5), "GPU-1") == (0.4, 0.6)

    def test_no_other_gpu_counts(self):
        assert self.busy(self.READINGS, (0.5, 2.5), "") == ()
        assert self.busy(self.READINGS, (0.5, 2.5), "GPU-7") == ()

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
        assert len(watch.busy((began, time.perf_counter()), "GPU-0")) > 1
