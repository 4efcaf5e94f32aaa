"""How much memory may be used: of all limits that the kernel tells, the tightest."""

import dataclasses
import os
import subprocess
import sys

import pytest

from fastload.system.descriptors import OpenFiles, open_files
from fastload.system.memory import SharedMemory, available_memory_bytes, memory_limit_bytes, shared_memory

GIB = 2**30
NO_LIMIT_V1 = "9223372036854771712"


class TestAvailableMemory:
    @pytest.fixture
    def meminfo(self, tmp_path):
        file = tmp_path / "meminfo"
        file.write_text(f"MemTotal:  9 kB\nMemFree:  8 kB\nMemAvailable:   {8 * 2**20} kB\n")
        return file

    def test_none_where_the_system_does_not_say(self, tmp_path):
        assert available_memory_bytes(tmp_path, tmp_path / "missing") is None

    def test_without_a_limit_it_is_what_the_kernel_says(self, v2, meminfo):
        v2.group("cg/jobs/train", memory__max="max", memory__high="max", memory__current="5")
        assert available_memory_bytes(v2.proc, meminfo) == 8 * GIB

    def test_v2_limit_leaves_what_is_not_used_and_what_is_cached(self, v2, meminfo):
        v2.group(
            "cg/jobs/train",
            memory__max=str(4 * GIB),
            memory__current=str(3 * GIB),
            memory__stat=f"anon 7\nfile 9\ninactive_file {GIB // 2}\nactive_file {GIB // 4}",
        )
        assert available_memory_bytes(v2.proc, meminfo) == GIB + GIB // 2 + GIB // 4

    def test_v2_high_counts_as_a_limit(self, v2, meminfo):
        v2.group(
            "cg/jobs/train",
            memory__max=str(4 * GIB),
            memory__high=str(2 * GIB),
            memory__current=str(GIB),
        )
        assert available_memory_bytes(v2.proc, meminfo) == GIB

    def test_v2_limit_of_a_group_above_counts(self, v2, meminfo):
        v2.group("cg/jobs/train", memory__max="max", memory__current=str(GIB))
        v2.group("cg/jobs", memory__max=str(4 * GIB), memory__current=str(3 * GIB))
        assert available_memory_bytes(v2.proc, meminfo) == GIB

    def test_v1_limit_leaves_what_is_not_used_and_what_is_cached(self, v1, meminfo):
        v1.group(
            "cg/memory/jobs",
            memory__limit_in_bytes=str(4 * GIB),
            memory__usage_in_bytes=str(3 * GIB),
            memory__stat=f"inactive_file 5\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}",
        )
        assert available_memory_bytes(v1.proc, meminfo) == 3 * GIB

    def test_v1_without_a_limit_it_is_what_the_kernel_says(self, v1, meminfo):
        v1.group("cg/memory/jobs", memory__limit_in_bytes=NO_LIMIT_V1, memory__usage_in_bytes=str(GIB))
        assert available_memory_bytes(v1.proc, meminfo) == 8 * GIB

    def test_never_below_zero(self, v2, meminfo):
        v2.group("cg/jobs/train", memory__max=str(GIB), memory__current=str(2 * GIB))
        assert available_memory_bytes(v2.proc, meminfo) == 0

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux says")
    def test_this_machine_has_some(self):
        available = available_memory_bytes()
        assert available is not None
        assert 0 < available <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class TestMemoryLimit:
    @pytest.fixture
    def meminfo(self, tmp_path):
        file = tmp_path / "meminfo"
        file.write_text(f"MemTotal:       {16 * 2**20} kB\nMemAvailable:   {8 * 2**20} kB\n")
        return file

    def test_without_a_limit_it_is_the_machine_s(self, v2, meminfo):
        v2.group("cg/jobs/train", memory__max="max", memory__high="max")
        assert memory_limit_bytes(v2.proc, meminfo) == 16 * GIB

    def test_v2_tightest_of_the_groups_counts_whatever_is_used(self, v2, meminfo):
        v2.group("cg/jobs/train", memory__max=str(4 * GIB), memory__current=str(3 * GIB))
        v2.group("cg/jobs", memory__max="max", memory__high=str(2 * GIB))
        assert memory_limit_bytes(v2.proc, meminfo) == 2 * GIB

    def test_v1_limit_counts_and_its_lack_does_not(self, v1, meminfo):
        v1.group("cg/memory/jobs", memory__limit_in_bytes=NO_LIMIT_V1)
        assert memory_limit_bytes(v1.proc, meminfo) == 16 * GIB
        v1.group("cg/memory/jobs", memory__limit_in_bytes=str(3 * GIB))
        assert memory_limit_bytes(v1.proc, meminfo) == 3 * GIB


class TestSharedMemory:
    def test_none_without_the_folder(self, tmp_path):
        assert shared_memory(tmp_path / "missing") is None

    @pytest.mark.skipif(not hasattr(os, "statvfs"), reason="Windows has no statvfs")
    def test_is_what_the_file_system_says(self, tmp_path):
        told = os.statvfs(tmp_path)
        read = shared_memory(tmp_path)
        assert isinstance(read, SharedMemory)
        assert read.total_bytes == told.f_blocks * told.f_frsize
        assert 0 <= read.free_bytes <= read.total_bytes


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
class TestOpenFiles:
    def test_each_open_file_counts_once(self, tmp_path):
        before = open_files()
        assert isinstance(before, OpenFiles)
        assert 0 < before.used <= before.soft <= before.hard
        with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
            assert open_files() == dataclasses.replace(before, used=before.used + 2)
        assert open_files() == before

    def test_limit_is_the_process_s_own(self):
        code = (
            "import resource; from fastload.system.descriptors import open_files\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200)); print(open_files())"
        )
        told = subprocess.check_output([sys.executable, "-c", code], text=True, stdin=subprocess.DEVNULL)
        assert told == "OpenFiles(soft=100, hard=200, used=3)\n"
