"""Measurements as a training would give them, built of a few figures."""

from fastload.loader.diagnosis import Setting
from fastload.loader.diagnosis.measurements import Seen
from fastload.loader.times import EpochTimes, LoadTimes

CPUS = Setting(usable_cpus=8.0, cpus=8, is_fastload=False)


def epoch(num_workers=2, waiting_s=8.0, stepping_s=2.0, first_wait_s=0.1, copying_s=0.0, busy_s=None, **load):
    """An epoch of 100 batches of 32; what is said of loading is that of each process."""
    processes = max(1, num_workers)
    busy_s = (10.0 if num_workers else waiting_s) if busy_s is None else busy_s
    cpu_s = load.get("cpu_s", busy_s)
    one = LoadTimes(
        100 // processes,
        3200 // processes,
        busy_s,
        cpu_s,
        load.get("delayed_s", 0.0),
        load.get("collate_s", 0.0),
    )
    return EpochTimes(
        num_workers=num_workers,
        prefetch_factor=2 if num_workers else None,
        batch_size=32,
        batches=100,
        samples=3200,
        batch_bytes=32 * 3 * 224 * 224,
        first_wait_s=first_wait_s,
        waiting_s=waiting_s,
        stepping_s=stepping_s,
        copying_s=copying_s,
        waits_s=(waiting_s / 99,) * 99,
        steps_s=(stepping_s / 99,) * 99,
        loading=(one,) * processes,
    )


def seen(**seconds):
    return tuple(Seen(activity, f"train.py:7 {activity}()", taken) for activity, taken in seconds.items())
