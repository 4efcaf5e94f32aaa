"""Starting is quick: neither the import nor the command line loads what they do not use yet."""

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "cv2", "h5py", "lmdb", "numpy", "torchvision")
IMPORT = "import fastload"
HELP = (
    "import sys, runpy; sys.argv = ['fastload', '--help']\n"
    "try: runpy.run_module('fastload', run_name='__main__')\n"
    "except SystemExit as stop: assert not stop.code, stop.code"
)


def run(*arguments: str) -> str:
    """Runs this Python; returns what it printed."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_starting_imports_nothing_heavy(code):
    loaded = f"import sys; print('loaded:', *(set({HEAVY!r}) & set(sys.modules)))"
    assert run("-c", f"{code}\n{loaded}").splitlines()[-1] == "loaded:"


# The one test that looks at a clock. 0.3 s is where a command starts to feel slow, and several
# times what is needed (torch alone takes over a second). The least of several runs is a program's
# own time, the rest is what else the machine did; the bare interpreter's is taken off.
@pytest.mark.parametrize("arguments", [("-c", IMPORT), ("-m", "fastload", "--help")], ids=["import", "help"])
def test_starting_takes_under_0_3_s(arguments):
    bare, ours = [], []
    for _ in range(7):
        for times, command in ((bare, ("-c", "pass")), (ours, arguments)):
            begin = time.perf_counter()
            run(*command)
            times.append(time.perf_counter() - begin)
    assert min(ours) - min(bare) < 0.3
