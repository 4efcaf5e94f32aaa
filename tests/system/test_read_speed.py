"""Reading real files is measured, from the disk if possible, within limits of time and bytes."""

import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from itertools import count

import numpy as np
import pytest

from fastload.system.disks import _dropped, disk_of, measure_reading, random_ranges
from fastload.system.page_cache import drop, resident_share
from tests.slow_disk import slow_disk

MIB = 1 << 20
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="mincore is Linux's")


def write(path, size):
    """Flush a file to the disk: pages that have not been written yet cannot be dropped."""
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    return path


@pytest.fixture
def disk(tmp_path):
    """A folder on a disk, not in memory."""
    if disk_of(tmp_path).kind == "memory":
        pytest.skip(f"needs a disk beneath {tmp_path}; --basetemp can name one")
    return tmp_path


@needs_linux
class TestPages:
    def test_read_pages_are_there_and_dropped_ones_are_not(self, disk):
        with write(disk / "a", 8 * MIB).open("rb") as file:
            file.read()
            assert resident_share(file.fileno(), 0, 8 * MIB) == 1.0
            drop(file.fileno(), 0, 8 * MIB)
            assert resident_share(file.fileno(), 0, 8 * MIB) == 0.0

    def test_part_of_a_file_is_dropped_and_distant_pages_stay(self, disk):
        with write(disk / "a", 16 * MIB).open("rb") as file:
            file.read()
            drop(file.fileno(), 5 * MIB + 5, 5 * MIB + 70_000)
            assert resident_share(file.fileno(), 5 * MIB + 5, 5 * MIB + 70_000) == 0.0
            assert resident_share(file.fileno(), 0, 2 * MIB) == 1.0
            assert resident_share(file.fileno(), 12 * MIB, 16 * MIB) == 1.0

    def test_range_beyond_the_end_is_unknown(self, disk):
        with write(disk / "a", 100).open("rb") as file:
            assert resident_share(file.fileno(), 0, 8 * MIB) is None

    def test_pages_without_a_disk_stay(self):
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            file.write(b"x" * MIB)
            file.flush()
            drop(file.fileno(), 0, MIB)
            assert resident_share(file.fileno(), 0, MIB) == 1.0


class TestRanges:
    def test_same_files_give_the_same_random_order(self, tmp_path):
        paths = [write(tmp_path / f"{n:02}", 10 + n) for n in range(50)]
        ranges = [*random_ranges(paths)]
        assert ranges == [*random_ranges(paths)]
        assert [each.path for each in ranges] != list(map(str, paths))

    def test_small_files_are_read_whole_each_once(self, tmp_path):
        paths = [write(tmp_path / f"{n:02}", 10 + n) for n in range(50)]
        ranges = random_ranges(paths)
        assert sorted((s.path, s.offset, s.size) for s in ranges) == [
            (str(path), 0, 10 + n) for n, path in enumerate(paths)
        ]

    def test_records_of_a_shard_lie_within_it_and_apart(self, tmp_path):
        path = tmp_path / "shard"
        with path.open("wb") as file:
            file.truncate(200 * MIB)
        ranges = sorted(random_ranges([path], 100_000), key=lambda s: s.offset)
        assert len(ranges) == 100
        assert all(s.size == 100_000 for s in ranges)
        assert len({s.offset // (2 * MIB) for s in ranges}) == 100
        assert ranges[-1].offset + 100_000 <= 200 * MIB

    def test_small_shard_still_gives_records(self, tmp_path):
        ranges = random_ranges([write(tmp_path / "a", 350_000)], 100_000)
        assert sorted(s.offset for s in ranges) == [0, 100_000, 200_000]

    def test_unreadable_files_are_left_out(self, tmp_path):
        write(tmp_path / "empty", 0)
        os.mkfifo(tmp_path / "fifo")  # Opening it would wait forever.
        names = ["missing", "empty", "fifo", "."]
        assert not [*random_ranges([tmp_path / name for name in names])]


def dropped(ranges):
    return _dropped(ranges, time.perf_counter() + 10, time.perf_counter)


class TestMeasureReading:
    def test_single_small_file_is_measured(self, disk):
        assert measure_reading([write(disk / "a.jpg", 8000)]) > 0

    def test_shard_is_measured_by_records(self, disk):
        assert measure_reading([write(disk / "shard", 40 * MIB)], 50_000) > 0

    def test_without_a_readable_file_there_is_no_speed(self, tmp_path):
        assert measure_reading([]) == 0
        assert measure_reading([tmp_path / "missing"]) == 0

    def test_unreadable_file_among_others_is_left_out(self, disk):
        assert measure_reading([write(disk / "a", 5000), disk / "missing"]) > 0

    @needs_linux
    def test_files_on_a_disk_are_read_cold(self, disk):
        ranges = [*random_ranges([write(disk / f"{n}", 100_000) for n in range(20)])]
        assert dropped(ranges) == ranges

    @needs_linux
    def test_files_in_memory_are_not_cold(self):
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            file.write(b"x" * MIB)
            file.flush()
            assert dropped([*random_ranges([file.name])]) == []
            assert measure_reading([file.name]) > 0

    @needs_linux
    def test_file_that_is_mapped_is_skipped(self, disk):
        paths = [write(disk / f"{n}", 100_000) for n in range(8)]
        mapped = np.memmap(paths[0], mode="r")
        assert mapped.sum() > 0
        gone = dropped([*random_ranges(paths)])
        assert sorted(each.path for each in gone) == sorted(map(str, paths[1:]))
        assert dropped([*random_ranges(paths[:1])]) == []
        assert measure_reading(paths[:1]) > 0

    @pytest.mark.parametrize("most_bytes", [64 << 10, MIB, 3 * MIB + 1])
    @pytest.mark.parametrize("kind", ["files", "shard"])
    def test_no_more_than_the_bytes_allowed_are_read(self, disk, kind, most_bytes, monkeypatch):
        paths = [disk / f"{n}" for n in range(1 if kind == "shard" else 40)]
        for path in paths:
            write(path, 40 * MIB if kind == "shard" else 150_000)
        counted, read = [], os.read
        monkeypatch.setattr(os, "read", lambda *given: counted.append(given[1]) or read(*given))
        assert measure_reading(paths, most_bytes=most_bytes, most_s=60) > 0
        assert 0 < sum(counted) <= most_bytes

    def test_measuring_ends_when_the_time_is_up(self, disk):
        paths = [write(disk / f"{n}", 100_000) for n in range(60)]
        ticks = count()
        assert measure_reading(paths, most_s=100.0, clock=lambda: float(next(ticks))) > 0
        assert next(ticks) < 150

    def test_nothing_is_left_behind_and_no_random_state_is_touched(self, disk):
        paths = [write(disk / f"{n}", 20_000) for n in range(40)] + [write(disk / "shard", 20 * MIB)]
        random.seed(1), np.random.seed(1)
        states = random.getstate(), np.random.get_state()[1].tolist()
        threads, files = threading.active_count(), sorted(os.listdir(disk))
        measure_reading(paths)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == states
        assert threading.active_count() == threads
        assert sorted(os.listdir(disk)) == files
        if os.path.isdir("/proc/self/fd"):
            held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
            assert not [path for path in held if path.startswith(str(disk))]


@needs_linux
class TestSlowDisk:
    """A disk of known speed cannot be measured as faster than it is."""

    def test_readers_overlap_their_latencies(self, tmp_path):
        for number in range(160):
            (tmp_path / f"{number}").write_bytes(os.urandom(20_000))
        with slow_disk(tmp_path, bytes_per_s=20e6, latency_s=0.01) as mount:
            bytes_per_s = measure_reading([mount / f"{n}" for n in range(160)])
        # One reader needs at least 11 ms a file; all readers get at most 20 MB/s.
        assert 20_000 / 0.011 < bytes_per_s < 21e6

    def test_very_slow_disk_is_measured_within_the_time(self, tmp_path):
        (tmp_path / "shard").write_bytes(os.urandom(2 * MIB))
        with slow_disk(tmp_path, bytes_per_s=1e5, latency_s=0.0) as mount:
            bytes_per_s = measure_reading([mount / "shard"], 100_000, most_s=1.0)
        assert 0 < bytes_per_s < 1.1e5

    def test_mount_and_server_are_gone_when_a_test_fails(self, tmp_path):
        write(tmp_path / "a", 1000)
        with contextlib.suppress(ZeroDivisionError), slow_disk(tmp_path, 1e6, 0.0) as mount:
            file = (mount / "a").open("rb")
            _ = 1 / 0
        file.close()
        assert not mount.exists()
