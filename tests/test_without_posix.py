"""Everything that users do, in a Python that lacks what Windows lacks, with spawned processes alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastload

FOLDER = Path(__file__).parent / "without_posix"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are listed in /proc")


@pytest.mark.parametrize(
    "program",
    ["pack", "load", *(pytest.param(name, marks=pytest.mark.soak) for name in ("fetch", "diagnose"))],
)
def test_programs_run_where_nothing_is_posix(program):
    paths = os.pathsep.join([str(FOLDER), str(FOLDER.parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.without_posix.programs", program],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_modules_that_windows_lacks_are_imported_only_where_they_are_guarded():
    lacking = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
    found = set()
    for path in Path(fastload.__file__).parent.rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:  # those of functions are guarded by their callers
            if isinstance(statement, ast.Import):
                found |= {f"{path.name}: {each.name}" for each in statement.names if each.name in lacking}
    assert not found
