"""The machine as a whole, and its identity."""

import dataclasses

import pytest

from fastload.system.cpus import cpu_name, local_ranks
from fastload.system.gpus import Gpu
from fastload.system.overview import identity, read_machine

GIB = 2**30


def test_this_machine_is_read():
    machine = read_machine()
    assert machine.cpu_name == cpu_name() != ""
    assert 1 <= machine.usable_cpus <= machine.cpus
    assert machine.ranks == local_ranks()
    assert 0 < machine.available_bytes <= machine.memory_bytes


def test_cpu_model_is_the_kernel_s(tmp_path):
    (tmp_path / "cpuinfo").write_text("vendor_id\t: X\nmodel name\t: Fast CPU @ 3 GHz \nflags\t: a\n")
    assert cpu_name(tmp_path / "cpuinfo") == "Fast CPU @ 3 GHz"


def test_identity_stays_while_free_resources_change():
    machine = read_machine()
    later = dataclasses.replace(machine, available_bytes=1, ranks=7, open_files=None, shared_memory=None)
    assert identity(machine) == identity(later)


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_name": "other"},
        {"usable_cpus": 99},
        {"memory_bytes": 3 * GIB},
        {"gpus": (Gpu(0, "NVIDIA H200", 141 * GIB, 0, None),)},
    ],
)
def test_identity_differs_between_machines(change):
    machine = read_machine()
    assert identity(machine) != identity(dataclasses.replace(machine, **change))


def test_identity_differs_between_hosts():
    machine = read_machine()
    assert identity(machine, "one") != identity(machine, "two")
    assert identity(machine) == identity(machine)
    assert len(identity(machine)) == 16
