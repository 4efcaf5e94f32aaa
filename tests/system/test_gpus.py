"""GPUs as NVML reports them."""

import contextlib
from types import SimpleNamespace

import pytest

from fastload.system.gpus import Gpu, gpu_reader


class NvmlError(Exception):
    """Raised by NVML."""


class Nvml:
    """The functions of `pynvml` that are used, for GPUs given as values; some functions are refused."""

    NVMLError = NvmlError

    def __init__(self, *devices, refused=()):
        self.devices = devices
        self.refused = refused
        self.opened = 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in self.refused:

            def refuse(*arguments):
                raise NvmlError(name)

            return refuse
        return super().__getattribute__(name)

    def nvmlInit(self):
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def nvmlDeviceGetCount(self):
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.devices[index]

    def nvmlDeviceGetUUID(self, device):
        return device.uuid

    def nvmlDeviceGetUtilizationRates(self, device):
        return SimpleNamespace(gpu=round(100 * device.utilization), memory=7)


ONE = Gpu("GPU-5a0e", 0.42)
TWO = Gpu("GPU-77b1", 0.0)


def read(nvml):
    with gpu_reader(nvml) as read_all:
        return read_all()


def test_every_gpu_is_read_and_nvml_is_closed():
    nvml = Nvml(ONE, TWO)
    assert read(nvml) == (ONE, TWO)
    assert nvml.opened == 0


@pytest.mark.parametrize("name", ["nvmlInit", "nvmlDeviceGetCount"])
def test_driver_that_refuses_shows_none(name):
    assert read(Nvml(ONE, refused=[name])) == ()


def test_utilization_is_unknown_if_the_driver_refuses_it():
    assert read(Nvml(ONE, refused=["nvmlDeviceGetUtilizationRates"])) == (Gpu("GPU-5a0e", None),)


@pytest.mark.parametrize("name", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
def test_gpu_that_fell_off_the_bus_is_left_out(name):
    assert read(Nvml(ONE, refused=[name])) == ()


def test_nvml_stays_open_between_readings_and_closes_after_an_error():
    nvml = Nvml(ONE)
    with contextlib.suppress(KeyError), gpu_reader(nvml) as read_all:
        assert read_all() == read_all() == (ONE,)
        assert nvml.opened == 1
        raise KeyError
    assert nvml.opened == 0


def test_this_machine_is_read_without_an_error():
    with gpu_reader() as read:
        assert all(isinstance(gpu, Gpu) for gpu in read())


def test_nvml_has_the_functions():
    pynvml = pytest.importorskip("pynvml")
    names = [name for name in vars(Nvml) if name.startswith("nvml")]
    assert all(callable(getattr(pynvml, name)) for name in names)
    assert issubclass(pynvml.NVMLError, Exception)


@pytest.mark.gpu
def test_torch_finds_the_same_gpus():
    import torch

    with gpu_reader() as read:
        by_uuid = {gpu.uuid: gpu for gpu in read()}
    for index in range(torch.cuda.device_count()):
        gpu = by_uuid[f"GPU-{torch.cuda.get_device_properties(index).uuid}"]
        assert gpu.utilization is None or 0 <= gpu.utilization <= 1
