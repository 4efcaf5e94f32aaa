"""Interruptions of the doctor: its exit code, its one line, and nothing left behind."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.commands import start, wait_until_gone, workers_of
from tests.doctor.situations import make_photos

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions are read from /proc")

SCRIPT = """
import time
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for batch in DataLoader(range(10**6), 4, num_workers=2, persistent_workers=True):
        print("batch", flush=True)
        time.sleep(0.1)
"""


@pytest.fixture
def environment():
    # A short path: torch's workers hang if that of a socket there exceeds the 108 bytes that Unix allows.
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as folder:
        yield os.environ | {"TMPDIR": folder}


def left_in(environment):
    return [path.name for path in Path(environment["TMPDIR"]).glob("fastload-*")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_examination_of_data_ends_with_one_line(tmp_path, environment, number):
    photos = make_photos(tmp_path / "photos", 40, 480, 640)
    process = start(["doctor", "--quiet", photos], env=environment)
    deadline = time.monotonic() + 60
    while not workers_of(process.pid):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    lines = ["fastload: interrupted: the same command starts over"]
    assert errors.splitlines() == (lines if number == signal.SIGINT else [])
    wait_until_gone(process.pid)
    assert left_in(environment) == []


def test_a_terminated_script_leaves_no_files_and_is_not_judged(tmp_path, environment):
    (tmp_path / "train.py").write_text(SCRIPT)
    process = start(["doctor", "--quiet", tmp_path / "train.py"], env=environment)
    assert process.stdout.readline() == "batch\n"
    assert left_in(environment)
    process.terminate()
    output, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert set(output.splitlines()) <= {"batch"}
    assert errors == ""
    wait_until_gone(process.pid)
    assert left_in(environment) == []


def test_ctrl_c_ends_a_script_with_a_report_and_a_second_one_the_trials(tmp_path, environment):
    (tmp_path / "train.py").write_text(SCRIPT)
    process = start(["doctor", "--step", tmp_path / "train.py"], env=environment)
    assert "Ctrl-C ends it sooner" in process.stderr.readline()
    for _ in range(8):
        assert process.stdout.readline() == "batch\n"
    process.send_signal(signal.SIGINT)
    while "trial 1: running the script as it is" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "What limits train.py?" in output
    assert "Time for one batch" in output
    assert "trial 2" not in errors
    wait_until_gone(process.pid)
    assert left_in(environment) == []
