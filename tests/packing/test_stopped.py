"""Packing with stopped or stuck processes: any signal ends it soon, and nothing is left behind."""

import os
import signal
import subprocess
import time
from multiprocessing import get_all_start_methods
from pathlib import Path

import numpy as np
import pytest

from fastload import PackError, pack
from tests.commands import session_members, start, start_python, wait_until_gone, workers_of
from tests.folders import class_folders

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc")

# A program whose two workers stop or get stuck; run from a file, as spawn requires.
PROGRAM = """
import multiprocessing, os, signal, sys, time
import numpy as np
import fastload

class Dataset:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index >= 20 and multiprocessing.parent_process() is not None:
            open(os.path.join(sys.argv[2], str(os.getpid())), "w").close()
            if sys.argv[3] == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)
        return np.full((8, 8, 3), index, np.uint8), index

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    fastload.pack(Dataset(), os.path.join(sys.argv[2], "x.fl"), encode="raw", workers=2)
"""


def states(pids):
    """The state of each process, as ps shows it."""
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


@pytest.mark.parametrize(
    ("method", "number", "state"),
    [
        ("fork", signal.SIGINT, "stopped"),
        ("fork", signal.SIGHUP, "stopped"),
        ("spawn", signal.SIGINT, "stopped"),
        ("forkserver", signal.SIGTERM, "stopped"),
        ("forkserver", signal.SIGKILL, "stuck"),
    ],
)
def test_packing_with_stopped_workers_ends_by_any_signal(tmp_path, method, number, state):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "out").mkdir()
    command = [tmp_path / "program.py", method, tmp_path / "out", state]
    process = start_python(*command, start_new_session=True, stderr=subprocess.PIPE)
    try:
        end_s = time.monotonic() + 60
        while len(workers := [name for name in os.listdir(tmp_path / "out") if name.isdigit()]) < 2:
            assert time.monotonic() < end_s
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        while state == "stopped" and states(workers) != {"T"}:
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == -number
        wait_until_gone(process.pid)
    finally:
        for member in session_members(process.pid):
            os.kill(member, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_verifying_with_a_stopped_worker_ends_by_any_signal(tmp_path, number):
    pack(class_folders(tmp_path / "photos", 60), tmp_path / "x.fl", shard_size=4096)
    code = (
        "import os, signal, sys, fastload\n"
        "calls = []\n"
        "def stop(*done):\n"
        "    calls.append(done)\n"
        "    if len(calls) == 10:\n"  # once, and when both workers are at work
        "        os.kill(os.getpid(), signal.SIGSTOP)\n"
        "fastload.verify(sys.argv[1], workers=2, progress=stop)\n"
    )
    command = ["-c", code, tmp_path / "x.fl"]
    process = start_python(*command, start_new_session=True, stderr=subprocess.PIPE)
    try:
        while states([process.pid]) != {"T"}:  # it has stopped itself with its workers running
            time.sleep(0.01)
        if (
            number != signal.SIGKILL or get_all_start_methods()[0] == "fork"
        ):  # no other can end one that is stopped
            for member in workers_of(process.pid):
                os.kill(member, signal.SIGSTOP)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=30)
        assert process.returncode == -number
        wait_until_gone(process.pid)
    finally:
        for member in session_members(process.pid):
            os.kill(member, signal.SIGKILL)


def test_second_ctrl_c_changes_nothing(tmp_path):
    source = class_folders(tmp_path / "photos", 300, size=(200, 300))
    process = start(["pack", source, tmp_path / "x.fl", "--encode", "jpeg", "--workers", 2])
    try:
        while len(workers_of(process.pid)) < 2:
            time.sleep(0.01)
        for member in workers_of(process.pid):
            os.kill(member, signal.SIGSTOP)
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.01)
        _, errors = process.communicate(timeout=30)
        assert process.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in errors
        wait_until_gone(process.pid)
    finally:
        for member in session_members(process.pid):
            os.kill(member, signal.SIGKILL)


class Spawner:
    """A dataset whose worker starts a process that keeps its pipe, and is killed."""

    def __init__(self, note):
        self.note = note
        self.main = os.getpid()

    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index == 50 and os.getpid() != self.main:
            child = os.fork()
            if child == 0:
                time.sleep(1000)
            self.note.write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((8, 8, 3), index, np.uint8), index


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_killed_worker_is_reported_although_its_child_keeps_the_pipe_open(tmp_path):
    with pytest.raises(PackError, match=r"process \d+ died"):
        pack(Spawner(tmp_path / "child"), tmp_path / "x.fl", encode="raw", workers=1)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
