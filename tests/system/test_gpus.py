"""GPUs as their driver tells of them, and the machine as a whole."""

import ctypes
import dataclasses
import sys
from types import SimpleNamespace

import pytest

from fastload.system.cpus import cpu_name, local_ranks
from fastload.system.gpus import Gpu, gpus, gpus_of
from fastload.system.overview import identity, read_machine

GIB = 2**30


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
