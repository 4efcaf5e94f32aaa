"""The number of usable CPUs is the tightest limit of affinity and cgroups."""

import os
import subprocess
import sys

import pytest

from fastload.system.cpus import cpu_name, cpu_quota, local_ranks, usable_cpus


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
    def test_affinity_of_one_cpu_is_respected(self):
        code = (
            "import os; from fastload.system.cpus import usable_cpus\n"
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(usable_cpus())"
        )
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"

    def test_this_machine_has_at_least_one(self):
        assert 1 <= usable_cpus() <= (os.cpu_count() or 1)


class TestLocalRanks:
    @pytest.mark.parametrize(
        ("environ", "ranks"),
        [
            ({}, 1),
            ({"LOCAL_WORLD_SIZE": "8"}, 8),
            ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
            ({"MPI_LOCALNRANKS": "2"}, 2),
            ({"SLURM_NTASKS_PER_NODE": "4"}, 4),
            ({"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, 4),
            ({"SLURM_STEP_TASKS_PER_NODE": "3,4(x2)"}, 4),
            ({"LOCAL_WORLD_SIZE": "2", "SLURM_NTASKS_PER_NODE": "8"}, 2),
            ({"LOCAL_WORLD_SIZE": "many"}, 1),
            ({"LOCAL_WORLD_SIZE": "many", "MPI_LOCALNRANKS": "3"}, 3),
            ({"LOCAL_WORLD_SIZE": "-2"}, 1),
            ({"LOCAL_WORLD_SIZE": "0"}, 1),
        ],
    )
    def test_launcher_sets_the_number_and_one_is_the_least(self, environ, ranks):
        assert local_ranks(environ) == ranks


def test_cpu_model_is_that_of_the_kernel(tmp_path):
    (tmp_path / "cpuinfo").write_text("vendor_id\t: X\nmodel name\t: Fast CPU @ 3 GHz \nflags\t: a\n")
    assert cpu_name(tmp_path / "cpuinfo") == "Fast CPU @ 3 GHz"
    assert cpu_name()
