"""Times of batches: also of those that are not measured in detail."""

import time

from fastload.loader.clock import STAT_COUNT, StatsRecorder


def test_batches_between_those_measured_in_detail_have_the_same_shares():
    sums = [0.0] * STAT_COUNT
    recorder = StatsRecorder(sums)
    for _ in range(20):
        recorder.begin()
        time.sleep(0.002)
        recorder.fetched(3)
        recorder.end()
    batches, samples, busy_s, cpu_s, *_ = sums
    assert (batches, samples) == (20, 60)
    assert busy_s >= 0.04
    assert cpu_s < busy_s / 2  # the rest is waiting, in all batches
