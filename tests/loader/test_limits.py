"""Small limits, signals and early ends: torch's errors, no hang, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.commands import run_python

# Common part of the scripts below: the loader, datasets, and a list of everything a process may leave behind.
PRELUDE = """
import gc, os, resource, signal, sys, threading, time
import torch
import fastload
from tests.loader.datasets import Rows

def descriptors():
    return sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                  if os.path.lexists(f"/proc/self/fd/{fd}"))

def left():
    "Child processes, descriptors, threads and shared memory of this process."
    gc.collect()
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    shared = [line for line in open("/proc/self/maps") if "memfd:" in line or "/dev/shm" in line]
    return children, descriptors(), threading.active_count(), shared, segments()

def segments():
    "Named segments of torch's whose process has ended; others use the folder too."
    names = [name for name in os.listdir("/dev/shm") if name.startswith("torch_")]
    return [name for name in names if not os.path.exists("/proc/" + name.split("_")[1])]

def loader(length=400, size=3000, **options):
    return fastload.DataLoader(Rows(length, size), **{"batch_size": 4, "num_workers": 2, **options})

def main():
    list(loader(8))
    end = time.monotonic() + 10
    # A queue's thread ends a moment after its queue.
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.01)
    before = left()
    body()
    while left() != before and time.monotonic() < end:
        time.sleep(0.01)
    assert left() == before, (before, left())
    print("nothing left")
"""


def run(body: str, *prefix: str, method: str = "fork") -> subprocess.CompletedProcess[str]:
    script = PRELUDE + "\ndef body():\n" + textwrap.indent(textwrap.dedent(body), "    ")
    script += (
        "\nif __name__ == '__main__':\n"
        "    torch.multiprocessing.set_forkserver_preload(['torch'])\n"
        f"    torch.multiprocessing.set_start_method({method!r})\n"
        "    main()\n"
    )
    if not prefix:
        return run_python("-c", script)
    command = [*prefix, sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


def assert_clean(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("nothing left\n")


ENDINGS = {
    "epochs": """
        for _ in range(3):
            for rows, labels in loader(80):
                pass
        del rows, labels
    """,
    "early break": """
        for rows, labels in loader():
            if labels[0] > 20:
                break
        del rows, labels
    """,
    "persistent": """
        persistent = loader(40, persistent_workers=True)
        assert [len(list(persistent)) for _ in range(3)] == [10, 10, 10]
    """,
    "exception in the training loop": """
        try:
            for batch in loader():
                raise RuntimeError("training")
        except RuntimeError:
            pass
        del batch
    """,
    "interrupt": """
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for batch in loader(1_000_000):
                pass
        except KeyboardInterrupt:
            pass
        del batch
    """,
    "killed worker": """
        iterator = iter(loader(1_000_000))
        batch = next(iterator)
        os.kill(iterator._workers[1].pid, signal.SIGKILL)
        try:
            for batch in iterator:
                pass
        except RuntimeError as error:
            assert "exited unexpectedly" in str(error) or "is killed by signal: Killed" in str(error), error
        else:
            raise AssertionError("no error")
        del iterator, batch
    """,
    "held batches": """
        held = list(loader(200))
        assert [int(labels[0]) for _, labels in held] == list(range(0, 200, 4))
        del held
    """,
    "pickling error": """
        try:
            list(loader(8, collate_fn=lambda samples: lambda: samples))
        except Exception as error:
            assert "pickle" in str(error) or "local object" in str(error)
        else:
            raise AssertionError("no error")
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_behind(ending):
    assert_clean(run(ENDINGS[ending]))


def test_several_threads_may_iterate_and_fork_at_once():
    """Plain threads: with any loader, a child forked by an executor's thread cannot end cleanly (CPython).

    In its own process, because filelock 4.2, if another test has imported it, forbids this.
    """
    body = """
        ended = []

        def iterate():
            for _ in range(6):
                for rows, labels in fastload.DataLoader(Rows(24), batch_size=3, num_workers=1):
                    assert rows[2, 0] == labels[2]
            ended.append(True)

        threads = [threading.Thread(target=iterate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ended) == 4
    """
    assert_clean(run(body))


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.soak)])
def test_other_start_methods_leave_nothing_but_their_own_helpers(method):
    body = """
        def own_left():
            children, files, threads, shared, segments = left()
            return files, threads, shared, segments
        before = own_left()
        assert len(list(loader(40))) == 10
        end = time.monotonic() + 10
        while (after := own_left()) != before and time.monotonic() < end:
            time.sleep(0.01)
        assert after == before, (before, after)
    """
    assert_clean(run(body, method=method))


def test_256_descriptors_suffice():
    """Also with held batches, for each of which torch keeps two."""
    body = """
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        held = list(loader(4000))
        assert len(held) == 1000
        assert len(descriptors()) < 60
        del held
    """
    assert_clean(run(body))


@pytest.mark.parametrize("more", [0, 4, 8])
def test_too_few_descriptors_for_workers_are_named(more):
    body = f"""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(descriptors()) - 1 + {more}, limits[1]))
        try:
            list(loader())
        except fastload.AccessError as error:
            assert "num_workers=2 needs more open files" in str(error), error
            print("named", flush=True)
        else:
            raise AssertionError("it ran")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    """
    # Descriptors left behind are not compared: if a process's second pipe fails, Python leaks the first.
    result = run(body)
    assert result.stdout.startswith("named\n"), result.stderr


def test_a_limit_on_address_space_makes_sections_smaller():
    body = """
        resource.setrlimit(resource.RLIMIT_AS, (24 << 30, resource.RLIM_INFINITY))
        iterator = iter(loader(40))
        assert 1 << 28 <= iterator._arena.section_bytes <= 3 << 30
        assert len(list(iterator)) == 10
        torch.empty(12 << 30, dtype=torch.uint8)
        del iterator
    """
    assert_clean(run(body))


def test_without_memory_files_batches_go_torchs_way():
    body = """
        del os.memfd_create
        iterator = iter(loader(40))
        assert iterator._arena is None
        assert [labels.tolist() for _, labels in iterator][3] == [12, 13, 14, 15]
        del iterator
    """
    assert_clean(run(body))


def test_64_megabytes_of_dev_shm_suffice(require_tool):
    """The default of containers; torch's transport needs more for one batch."""
    unshare = require_tool("unshare")
    if os.geteuid():
        pytest.skip("needs root, for a mount namespace of its own")
    mount = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$0" "$@"'
    body = """
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 64 << 20
        for rows, labels in loader(48, 2_000_000, batch_size=8):
            assert rows[3, 5] == labels[3] + 5
        for rows, label in loader(4, 30_000_000, batch_size=None):
            assert rows[5] == label + 5
        stack = lambda samples: [torch.stack([row for row, _ in samples])]
        for (rows,) in loader(8, 8_000_000, collate_fn=stack):
            assert rows.shape == (4, 8_000_000)
        del rows, labels, label
    """
    assert_clean(run(body, unshare, "-m", "sh", "-c", mount))


RESIDENT = """
    import re
    def resident_kb(process):
        return int(re.search(r"VmRSS:\\s+(\\d+)", open(f"/proc/{process}/status").read())[1])
    iterator = iter(loader(4 * BATCHES, 3000))
    kept, sizes = [], []
    for number, (rows, labels) in enumerate(iterator):
        kept = [*kept[-3:], rows]
        if number % (BATCHES // 10) == BATCHES // 20:
            processes = [os.getpid(), *(worker.pid for worker in iterator._workers)]
            sizes.append([resident_kb(process) for process in processes])
    del iterator, rows, labels, kept
    for first, last in zip(sizes[2], sizes[-1]):
        assert last < first * 1.02 + 1000, sizes
"""


def test_resident_memory_stays_flat():
    assert_clean(run(RESIDENT.replace("BATCHES", "1000")))


@pytest.mark.soak
def test_resident_memory_stays_flat_over_20_000_batches():
    assert_clean(run(RESIDENT.replace("BATCHES", "20_000")))
