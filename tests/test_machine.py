"""What may be used of this machine: of all limits that the kernel tells, the tightest."""

import ctypes
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastload.machine import (
    Gpu,
    OpenFiles,
    SharedMemory,
    available_memory_bytes,
    cpu_name,
    cpu_quota,
    gpus,
    identity,
    local_ranks,
    memory_limit_bytes,
    open_files,
    read_machine,
    shared_memory,
    usable_cpus,
)
from fastload.machine.nvml import gpus_of

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
            ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"}, 3),
            ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "9"}, 4),
            ({"LOCAL_WORLD_SIZE": "2", "SLURM_NTASKS_PER_NODE": "8"}, 2),
            ({"LOCAL_WORLD_SIZE": "many"}, 1),
            ({"LOCAL_WORLD_SIZE": "many", "MPI_LOCALNRANKS": "3"}, 3),
            ({"LOCAL_WORLD_SIZE": "-2"}, 1),
            ({"LOCAL_WORLD_SIZE": "0"}, 1),
            ({"SLURM_STEP_TASKS_PER_NODE": "4(x0)"}, 1),
        ],
    )
    def test_launcher_says_and_one_is_the_least(self, environ, ranks):
        assert local_ranks(environ) == ranks


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
            "import resource; from fastload.machine import open_files\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200)); print(open_files())"
        )
        told = subprocess.check_output([sys.executable, "-c", code], text=True, stdin=subprocess.DEVNULL)
        assert told == "OpenFiles(soft=100, hard=200, used=3)\n"


def nvml(*devices, **refusals):
    """Functions as NVML exports them, which C calls and is called by, of GPUs given as values.

    `refusals` maps a function's name to what it returns instead of success.
    """
    text, number = ctypes.POINTER(ctypes.c_char), ctypes.POINTER(ctypes.c_uint)
    handle, long = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_ulonglong)

    def fill(pointer, *values):
        for place, value in enumerate(values):
            pointer[place] = value

    def spell(pointer, word):
        fill(pointer, *[bytes([byte]) for byte in word.encode() + b"\0"])

    functions = {
        "nvmlInit_v2": ((), lambda: None),
        "nvmlShutdown": ((), lambda: None),
        "nvmlDeviceGetCount_v2": ((number,), lambda count: fill(count, len(devices))),
        "nvmlDeviceGetHandleByIndex_v2": ((ctypes.c_uint, handle), lambda i, found: fill(found, i + 1)),
        "nvmlDeviceGetName": (
            (ctypes.c_void_p, text, ctypes.c_uint),
            lambda device, name, size: spell(name, devices[device - 1].name),
        ),
        "nvmlDeviceGetUUID": (
            (ctypes.c_void_p, text, ctypes.c_uint),
            lambda device, uuid, size: spell(uuid, devices[device - 1].uuid),
        ),
        "nvmlDeviceGetMemoryInfo": (
            (ctypes.c_void_p, long),
            lambda device, memory: fill(
                memory,
                devices[device - 1].memory_bytes,
                devices[device - 1].memory_bytes - devices[device - 1].used_bytes,
                devices[device - 1].used_bytes,
            ),
        ),
        "nvmlDeviceGetUtilizationRates": (
            (ctypes.c_void_p, number),
            lambda device, rates: fill(rates, round(devices[device - 1].utilization * 100), 7),
        ),
    }

    def exported(name, types, call):
        def answer(*arguments):
            if name in refusals:
                return refusals[name]
            call(*arguments)
            return 0

        return ctypes.CFUNCTYPE(ctypes.c_int, *types)(answer)

    return SimpleNamespace(**{name: exported(name, *of) for name, of in functions.items()})


class TestGpus:
    ONE = Gpu(0, "NVIDIA H200", 141 * GIB, 5 * GIB, 0.42, "GPU-5a0e")
    TWO = Gpu(1, "NVIDIA T4", 15 * GIB, 0, 0.0, "GPU-77b1")

    def test_every_gpu_is_told(self):
        assert gpus_of(nvml(self.ONE, self.TWO)) == (self.ONE, self.TWO)

    @pytest.mark.parametrize("name", ["nvmlInit_v2", "nvmlDeviceGetCount_v2"])
    def test_driver_that_refuses_shows_none(self, name):
        assert gpus_of(nvml(self.ONE, **{name: 9})) == ()

    def test_what_the_driver_does_not_tell_is_left_open(self):
        refused = ("MemoryInfo", "UtilizationRates", "Name", "UUID")
        read = gpus_of(nvml(self.ONE, **{f"nvmlDeviceGet{name}": 3 for name in refused}))
        assert read == (Gpu(0, "GPU", 0, 0, None, ""),)

    def test_gpu_that_fell_off_the_bus_is_left_out(self):
        assert gpus_of(nvml(self.ONE, nvmlDeviceGetHandleByIndex_v2=15)) == ()

    def test_without_a_driver_there_are_none(self):
        assert gpus("libno-such-driver.so.1") == ()

    @pytest.mark.skipif(sys.platform != "linux", reason="names Linux's C library")
    def test_library_without_the_functions_shows_none(self):
        assert gpus("libc.so.6") == ()

    @pytest.mark.gpu
    def test_torch_finds_the_same_gpus(self):
        import torch

        told = {gpu.uuid: gpu for gpu in gpus()}
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            gpu = told[f"GPU-{properties.uuid}"]
            assert gpu.name == properties.name
            assert gpu.memory_bytes >= properties.total_memory
            assert gpu.utilization is None or 0 <= gpu.utilization <= 1


class TestMachine:
    def test_this_machine_is_read(self):
        machine = read_machine()
        assert machine.cpu_name == cpu_name() != ""
        assert 1 <= machine.usable_cpus <= machine.cpus
        assert machine.ranks == local_ranks()
        if machine.memory_bytes is not None and machine.available_bytes is not None:
            assert 0 < machine.available_bytes <= machine.memory_bytes

    def test_model_is_named_as_the_kernel_does(self, tmp_path):
        (tmp_path / "cpuinfo").write_text("vendor_id\t: X\nmodel name\t: Fast CPU @ 3 GHz \nflags\t: a\n")
        assert cpu_name(tmp_path / "cpuinfo") == "Fast CPU @ 3 GHz"

    def test_identity_stays_while_what_is_free_changes(self):
        machine = read_machine()
        later = dataclasses.replace(machine, available_bytes=1, ranks=7, open_files=None, shared_memory=None)
        assert identity(machine) == identity(later)

    @pytest.mark.parametrize(
        "change",
        [{"cpu_name": "other"}, {"usable_cpus": 99}, {"memory_bytes": 3 * GIB}, {"gpus": (TestGpus.ONE,)}],
    )
    def test_identity_tells_machines_apart(self, change):
        machine = read_machine()
        assert identity(machine) != identity(dataclasses.replace(machine, **change))

    def test_identity_tells_hosts_apart(self):
        machine = read_machine()
        assert identity(machine, "one") != identity(machine, "two")
        assert identity(machine) == identity(machine)
        assert len(identity(machine)) == 16
