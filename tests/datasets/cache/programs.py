"""Programs that use a cache and follow a test's commands until they end or are killed."""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.commands import start_python


def plenty() -> int:
    """Return more memory than any test takes, so that tests pass on a machine with little memory."""
    return 1 << 33


ROOT = Path(__file__).parents[3]

_PROGRAM = """
import json, os, sys
import numpy as np
from fastload import FolderDataset
from fastload.datasets.cache.options import Cache
from tests.datasets.cache.programs import plenty

path, kind, place, form = sys.argv[1:]
dataset = FolderDataset(path)
dataset.use_cache(Cache(kind, place, form), room=plenty)
cache = dataset._cache

def answer():
    report = cache.report()
    store = cache.store
    values = {"inode": os.fstat(store.descriptor).st_ino, "ready": store.ready}
    values |= {"hits": report.hits, "misses": report.misses, "stopped": report.stopped}
    print(json.dumps(values), flush=True)

answer()
for line in sys.stdin:
    command, *rest = line.split()
    if command == "read":
        for index in range(*map(int, rest)):
            cache.images(np.array([index]), dataset._stored_images, None)
    answer()
"""


class Program:
    """A program that has opened a folder's cache, whose stores are in `place`."""

    def __init__(self, path: Path, place: Path, kind: str = "ram", form: str = "encoded") -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = start_python("-c", _PROGRAM, path, kind, place, form, cwd=ROOT, **pipes)
        self.opened = self.answer()

    def answer(self) -> dict[str, int]:
        """Return the state of its cache."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, command: str) -> dict[str, int]:
        """Send a command and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """End it normally."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.end()


@contextlib.contextmanager
def running(*arguments: object) -> Iterator[Program]:
    """Run a program, and end it afterwards."""
    program = Program(*arguments)
    try:
        yield program
    finally:
        program.end()


def is_alive(process: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
