"""Restricted machines for training runs: a slow disk, a small quota, a small /dev/shm."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.situations import Situation
from tests.slow_disk import slow_disk

QUOTA_CPUS = 0.5
SHARED_MEMORY = "24m"

_PERIOD_US = 100_000


@contextlib.contextmanager
def place_of(situation: Situation, folders: dict[str, Path]) -> Iterator[tuple[list[str], dict[str, Path]]]:
    """Yield the prefix of a command that runs there, and the folders; skip the test if that is impossible."""
    if situation.place == "latency":
        with slow_disk(folders["many"], bytes_per_s=1e9, latency_s=0.01) as mount:
            yield [], {**folders, "slow": mount}
    elif situation.place == "bandwidth":
        with slow_disk(folders["many"], bytes_per_s=5e5, latency_s=0.0) as mount:
            yield [], {**folders, "slow": mount}
    elif situation.place == "quota":
        with _control_group() as enter:
            yield ["sh", "-c", f'echo $$ > {enter}/cgroup.procs && exec "$@"', "sh"], folders
    elif situation.place == "shm":
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("needs root and unshare, to mount a small /dev/shm")
        mount = f'mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm && exec "$@"'
        yield ["unshare", "-m", "sh", "-c", mount, "sh"], folders
    else:
        yield [], folders


@contextlib.contextmanager
def _control_group() -> Iterator[Path]:
    """Create a cgroup (version 1 or 2) with half a CPU."""
    name = f"fastload-doctor-{os.getpid()}"
    first, second = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    is_first = (first / "cpu.cfs_quota_us").exists() or (first / "cgroup.procs").exists()
    group = (first if is_first else second) / name
    try:
        group.mkdir()
        if is_first:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(QUOTA_CPUS * _PERIOD_US)))
        else:
            (group / "cpu.max").write_text(f"{int(QUOTA_CPUS * _PERIOD_US)} {_PERIOD_US}")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"needs to make a control group with a quota: {error}")
    try:
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


@contextlib.contextmanager
def slow_network(rate: str) -> Iterator[list[str]]:
    """Yield the prefix of a command whose loopback device has this rate; skip the test if impossible."""
    if os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("unshare") is None:
        pytest.skip("needs root, unshare and tc (iproute2), to slow down a loopback device")
    shape = f"tc qdisc add dev lo root tbf rate {rate} burst 256kb latency 400ms"
    enter = ["unshare", "-n", "sh", "-c", f'ip link set lo up mtu 1500 && {shape} && exec "$@"', "sh"]
    # The name of this machine is that of another device, which is not there.
    yield [*enter, "env", "GLOO_SOCKET_IFNAME=lo"]
