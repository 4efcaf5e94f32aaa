"""Runs of the tests that are interrupted: nothing that they have started goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import wait_until_gone
from tests.products import sampled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions are read from /proc")

ROOT = Path(__file__).parent.parent

# One program is a fork of the server that has imported torch, the other is started by pytest itself.
LONG_TEST = """
import subprocess, sys
from tests.commands import run_python

def test_that_takes_long():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as other:
        try:
            run_python("-c", "import pathlib, time; pathlib.Path('started').touch(); time.sleep(300)")
        finally:
            other.kill()
"""

# A fork of its own keeps the socket to the server open, as a stopped worker would.
STARTER = """
import os, time
from tests.commands import start_python
start_python("-c", "import pathlib, time; pathlib.Path('started').touch(); time.sleep(300)")
if not os.fork():
    os.setsid()
    print(os.getpid(), flush=True)
time.sleep(300)
"""


def started(folder: Path, *command: object) -> subprocess.Popen[str]:
    """Start Python as the leader of a session, and wait until its program runs."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (folder / "started").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(("number", "workers"), sampled([signal.SIGINT, signal.SIGTERM], [0, 1]))
def test_pytest_that_is_interrupted_leaves_no_process(tmp_path, number, workers):
    (tmp_path / "test_long.py").write_text(LONG_TEST)
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "tests.conftest", "-n", workers]
    with started(tmp_path, "-m", "pytest", *options, "test_long.py") as process:
        process.send_signal(number)
        printed, _ = process.communicate()
        assert process.returncode == pytest.ExitCode.INTERRUPTED, printed
    wait_until_gone(process.pid, timeout_s=30)


def test_server_ends_with_its_starter_though_a_fork_keeps_the_socket(tmp_path):
    with started(tmp_path, "-c", STARTER) as process:
        fork = int(process.stdout.readline())
        process.kill()
    try:
        wait_until_gone(process.pid)
    finally:
        os.kill(fork, signal.SIGKILL)
