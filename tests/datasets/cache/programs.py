"""Programs of their own that use a cache, and do what a test tells them until they end or are killed."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def plenty() -> int:
    """More memory than any test takes: they must pass on a machine that is short of it."""
    return 1 << 33


ROOT = Path(__file__).parents[3]

# Without a dataset, and so without torch, which takes seconds to import.
_PROGRAM = """
import json, os, sys, time
from fastload.datasets.cache.attaching import Extent, attach
from fastload.datasets.cache.files import FIXED_BYTES, KeptFiles
from fastload.datasets.cache.limits import CacheLimits
from fastload.datasets.cache.options import Cache
from fastload.images.decode import decode
from fastload.sources.folder import list_folder
from tests.datasets.cache.programs import plenty

path, kind, place, form = sys.argv[1:]
source = list_folder(path)[""]
count, size = len(source), source.size_bytes()
extent = Extent(path + source.fingerprint(), count, size, 20 * size, 0, FIXED_BYTES, ())
limits = CacheLimits(0, plenty)
keep = lambda form, opening: KeptFiles(source.files, form, opening)
cache = attach(Cache(kind, place, form), extent, keep, None, limits)
kept = cache.kept

def filler():
    process = cache._filler._process
    return process and process.pid

def is_filled():
    return cache.report().ready == 1

def answer():
    report = cache.report()
    told = {"inode": os.fstat(kept.store.descriptor).st_ino, "ready": kept.store.ready, "filler": filler()}
    told |= {"hits": report.hits, "misses": report.misses, "stopped": report.stopped}
    print(json.dumps(told), flush=True)

answer()
for line in sys.stdin:
    command, *rest = line.split()
    if command == "read":
        for index in range(*map(int, rest)):
            if kept.pixels(index) is None:
                data = kept.read(index)
                if form == "decoded":
                    kept.keep_pixels(index, decode(data), 1)
    elif command in ("fill", "start"):
        deadline = time.monotonic() + float(rest[0])
        while time.monotonic() < deadline and not is_filled():
            if command == "start" and filler():
                break
            cache.fill()
            time.sleep(0.02)
    answer()
"""


class Program:
    """A program that has opened a folder's cache.

    Args:
        path: Of the folder.
        place: Where stores lie.
        kind: Of the cache.
        form: What is kept.
    """

    def __init__(self, path: Path, place: Path, kind: str = "ram", form: str = "encoded") -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(path), kind, str(place), form],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self.opened = self.answer()

    def answer(self) -> dict[str, int]:
        """What it tells of its cache."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, command: str) -> dict[str, int]:
        """Has it do something, and waits for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Has it end in order."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def kill(self) -> None:
        """Kills it."""
        self.process.kill()
        self.end()


@contextlib.contextmanager
def running(*arguments: object) -> Iterator[Program]:
    """A program that has ended afterwards."""
    program = Program(*arguments)
    try:
        yield program
    finally:
        program.end()


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has only not been waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float = 20.0) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
