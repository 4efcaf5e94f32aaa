"""Starting is quick: neither the import nor the command line loads what they do not use yet."""

import subprocess
import sys

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
