"""The CPUs and the memory that may be used: of all limits that the kernel tells, the tightest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastload.machine import available_memory_bytes, cpu_quota, usable_cpus

GIB = 2**30
NO_LIMIT_V1 = "9223372036854771712"


class Tree:
    """Files as the kernel lays them out: a `/proc/self` and the control groups that it names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"
        self.proc.mkdir()
        self.write("proc/cgroup", "0::/\n")
        self.write("proc/mountinfo", "23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def mount(self, point: str, kind: str, options: str, root: str = "/") -> None:
        shown = str(self.root / point).replace("\\", "\\134").replace(" ", "\\040")
        with (self.proc / "mountinfo").open("a", encoding="utf-8") as file:
            file.write(f"31 23 0:28 {root} {shown} rw,nosuid shared:9 - {kind} {kind} {options}\n")

    def group(self, folder: str, **files: str) -> None:
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            self.write(f"{folder}/{name.replace('__', '.')}", text + "\n")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def v2(tree):
    """Version 2, the process in /jobs/train."""
    tree.write("proc/cgroup", "0::/jobs/train\n")
    tree.mount("cg", "cgroup2", "rw,nsdelegate")
    for folder in ("cg", "cg/jobs", "cg/jobs/train"):
        tree.group(folder)
    return tree


@pytest.fixture
def v1(tree):
    """Version 1, cpu and cpuacct mounted together; version 2 beside it without controllers."""
    tree.write("proc/cgroup", "5:memory:/jobs\n4:cpu,cpuacct:/jobs\n3:cpuset:/\n0::/jobs\n")
    tree.mount("cg/cpuset", "cgroup", "rw,cpuset")
    tree.mount("cg/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
    tree.mount("cg/memory", "cgroup", "rw,memory")
    tree.mount("cg/unified", "cgroup2", "rw")
    return tree


class TestCpuQuota:
    def test_none_without_control_groups(self, tmp_path):
        assert cpu_quota(tmp_path / "missing") is None

    def test_v2_quota_is_a_share_of_its_period(self, v2):
        v2.group("cg/jobs/train", cpu__max="150000 100000")
        assert cpu_quota(v2.proc) == 1.5

    def test_v2_max_is_no_limit(self, v2):
        v2.group("cg/jobs/train", cpu__max="max 100000")
        assert cpu_quota(v2.proc) is None

    def test_v2_tightest_of_the_groups_above_counts(self, v2):
        v2.group("cg/jobs/train", cpu__max="400000 100000")
        v2.group("cg/jobs", cpu__max="50000 25000")
        assert cpu_quota(v2.proc) == 2.0

    def test_v2_mounted_top_group_counts(self, v2):
        v2.group("cg", cpu__max="300000 100000")
        assert cpu_quota(v2.proc) == 3.0

    def test_v1_quota_is_a_share_of_its_period(self, v1):
        v1.group("cg/cpu,cpuacct/jobs", cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
        assert cpu_quota(v1.proc) == 2.5

    def test_v1_minus_one_is_no_limit(self, v1):
        v1.group("cg/cpu,cpuacct/jobs", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
        assert cpu_quota(v1.proc) is None

    def test_v1_group_outside_its_namespace_is_read_at_the_mount(self, tree):
        # Docker without cgroup namespaces: the path is the host's, and is mounted as the top.
        tree.write("proc/cgroup", "4:cpu,cpuacct:/docker/abc\n")
        tree.mount("cg/cpu", "cgroup", "rw,cpu,cpuacct", root="/docker/abc")
        tree.group("cg/cpu", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
        assert cpu_quota(tree.proc) == 1.0

    def test_group_above_the_mount_is_read_at_the_mount(self, tree):
        tree.write("proc/cgroup", "0::/\n")
        tree.mount("host/pod/abc", "cgroup2", "rw", root="/pod/abc")
        tree.group("host/pod/abc", cpu__max="200000 100000")
        tree.group("host", cpu__max="100000 100000")  # Not what the mount shows.
        assert cpu_quota(tree.proc) == 2.0

    def test_mount_point_with_a_space_is_found(self, tree):
        tree.mount("control groups", "cgroup2", "rw")
        tree.group("control groups", cpu__max="200000 100000")
        assert cpu_quota(tree.proc) == 2.0


class TestUsableCpus:
    def test_quota_below_the_affinity_is_rounded_up(self, v2):
        v2.group("cg/jobs/train", cpu__max="10000 100000")
        assert usable_cpus(v2.proc) == 1

    def test_fraction_counts_as_one_cpu(self, v2):
        whole = usable_cpus(v2.proc)
        v2.group("cg/jobs/train", cpu__max=f"{whole * 100000 - 50000} 100000")
        assert usable_cpus(v2.proc) == whole

    def test_quota_above_the_affinity_changes_nothing(self, v2):
        without = usable_cpus(v2.proc)
        v2.group("cg/jobs/train", cpu__max="102400000 100000")
        assert usable_cpus(v2.proc) == without

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity (Linux)")
    def test_affinity_of_one_cpu_is_obeyed(self):
        code = (
            "import os; from fastload.machine import usable_cpus\n"
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(usable_cpus())"
        )
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"

    def test_this_machine_has_at_least_one(self):
        assert 1 <= usable_cpus() <= (os.cpu_count() or 1)


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
