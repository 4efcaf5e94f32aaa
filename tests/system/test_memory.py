"""Available memory is the tightest limit of the machine and its cgroups."""

import os
import subprocess
import sys

import pytest

from fastload.system.memory import SharedMemory, available_memory_bytes, memory_limit_bytes, shared_memory
from fastload.system.proc import descriptor_limit, free_descriptors

GIB = 2**30
NO_LIMIT_V1 = "9223372036854771712"


class TestAvailableMemory:
    def test_without_a_limit_it_is_that_of_the_machine(self, v2):
        v2.group("cg/jobs/train", memory__max="max", memory__high="max", memory__current="5")
        assert available_memory_bytes(v2.proc, 8 * GIB) == 8 * GIB

    def test_v2_limit_leaves_unused_and_cached_memory(self, v2):
        v2.group(
            "cg/jobs/train",
            memory__max=str(4 * GIB),
            memory__current=str(3 * GIB),
            memory__stat=f"anon 7\nfile 9\ninactive_file {GIB // 2}\nactive_file {GIB // 4}",
        )
        assert available_memory_bytes(v2.proc, 8 * GIB) == GIB + GIB // 2 + GIB // 4

    def test_v2_high_counts_as_a_limit(self, v2):
        v2.group(
            "cg/jobs/train",
            memory__max=str(4 * GIB),
            memory__high=str(2 * GIB),
            memory__current=str(GIB),
        )
        assert available_memory_bytes(v2.proc, 8 * GIB) == GIB

    def test_v2_limit_of_a_group_above_counts(self, v2):
        v2.group("cg/jobs/train", memory__max="max", memory__current=str(GIB))
        v2.group("cg/jobs", memory__max=str(4 * GIB), memory__current=str(3 * GIB))
        assert available_memory_bytes(v2.proc, 8 * GIB) == GIB

    def test_v1_limit_leaves_unused_and_cached_memory(self, v1):
        v1.group(
            "cg/memory/jobs",
            memory__limit_in_bytes=str(4 * GIB),
            memory__usage_in_bytes=str(3 * GIB),
            memory__stat=f"inactive_file 5\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}",
        )
        assert available_memory_bytes(v1.proc, 8 * GIB) == 3 * GIB

    def test_v1_without_a_limit_it_is_that_of_the_machine(self, v1):
        v1.group("cg/memory/jobs", memory__limit_in_bytes=NO_LIMIT_V1, memory__usage_in_bytes=str(GIB))
        assert available_memory_bytes(v1.proc, 8 * GIB) == 8 * GIB

    def test_never_below_zero(self, v2):
        v2.group("cg/jobs/train", memory__max=str(GIB), memory__current=str(2 * GIB))
        assert available_memory_bytes(v2.proc, 8 * GIB) == 0

    def test_this_machine_has_some(self):
        assert 0 < available_memory_bytes() <= memory_limit_bytes()


class TestMemoryLimit:
    def test_without_a_limit_it_is_that_of_the_machine(self, v2):
        v2.group("cg/jobs/train", memory__max="max", memory__high="max")
        assert memory_limit_bytes(v2.proc, 16 * GIB) == 16 * GIB

    def test_v2_tightest_of_the_groups_counts_whatever_is_used(self, v2):
        v2.group("cg/jobs/train", memory__max=str(4 * GIB), memory__current=str(3 * GIB))
        v2.group("cg/jobs", memory__max="max", memory__high=str(2 * GIB))
        assert memory_limit_bytes(v2.proc, 16 * GIB) == 2 * GIB

    def test_v1_limit_counts_and_its_lack_does_not(self, v1):
        v1.group("cg/memory/jobs", memory__limit_in_bytes=NO_LIMIT_V1)
        assert memory_limit_bytes(v1.proc, 16 * GIB) == 16 * GIB
        v1.group("cg/memory/jobs", memory__limit_in_bytes=str(3 * GIB))
        assert memory_limit_bytes(v1.proc, 16 * GIB) == 3 * GIB


class TestSharedMemory:
    def test_none_without_the_folder(self, tmp_path):
        assert shared_memory(tmp_path / "missing") is None

    @pytest.mark.skipif(not hasattr(os, "statvfs"), reason="Windows has no statvfs")
    def test_is_the_size_of_the_file_system(self, tmp_path):
        status = os.statvfs(tmp_path)
        read = shared_memory(tmp_path)
        assert isinstance(read, SharedMemory)
        assert read.total_bytes == status.f_blocks * status.f_frsize
        assert 0 <= read.free_bytes <= read.total_bytes


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
class TestDescriptors:
    def test_each_open_file_takes_one(self, tmp_path):
        free, limit = free_descriptors(), descriptor_limit()
        assert free is not None
        assert limit is not None
        assert 0 <= free < limit
        with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
            assert free_descriptors() == free - 2
        assert free_descriptors() == free

    def test_limit_is_that_of_the_process(self):
        code = (
            "import resource; from fastload.system import proc\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
            "print(proc.descriptor_limit(), proc.free_descriptors())"
        )
        printed = subprocess.check_output([sys.executable, "-c", code], text=True, stdin=subprocess.DEVNULL)
        assert printed == "100 97\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_loader_works_where_no_freed_memory_can_be_kept():
    code = """
import resource, torch, fastload
dataset = torch.utils.data.TensorDataset(torch.arange(100))
fastload.DataLoader
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (30 << 20),) * 2)
print(len(list(fastload.DataLoader(dataset, 10, num_workers=0))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr
