"""Fixtures of all tests: tools that may be missing, torchvision beside CPU-only torch, profiles."""

import contextlib
import gc
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastload
from tests import tools
from tests.folders import SMALL_SHARDS, class_folders, tree

# A shell ignores Ctrl-C for what it starts in the background, nohup a terminal's end, and children inherit
# that: tests of interruptions would wait for what never comes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# SIGTERM ends a run as Ctrl-C does: what tests have started is ended with it. Tests' own forks die at once.
if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))

# From Python 3.14 on, processes are started by a server that imports all anew, and knows nothing of what a
# test defines or patches. What holds for each way of starting has tests that name the way.
if sys.platform == "linux" and multiprocessing.get_start_method(allow_none=True) is None:
    multiprocessing.set_start_method("fork")
    # The server that starts these imports torch once; spawned processes, which do so each, are for the soak.
    multiprocessing.set_forkserver_preload(["torch", "cv2", "fastload.loader.dataloader"])


# There is a pytest process for each CPU; with more threads, operators on small tensors take twice as long.
torch.set_num_threads(1)


@pytest.hookimpl(tryfirst=True)  # before the fixtures, which import the packages
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose marker `frameworks` names a package that is missing."""
    for marker in item.iter_markers("frameworks"):
        for package in marker.args:
            tools.require_framework(package)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Lets torch use two threads here, as in other programs."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _collects_only_what_tests_make() -> None:
    """Leaves what imports made out of every collection: it was a tenth of the suite's time."""
    # Hypothesis makes its generator in the first test of its own, and looks whether the collector knows who
    # refers to it, which on Python 3.14 it does not once that is frozen.
    given(st.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def unshare() -> list[str]:
    """The command that creates a mount namespace; skips the test where that is not permitted."""
    for options in (["-m"], ["-r", "-m"]):
        command = ["unshare", *options]
        try:
            tried = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
            subprocess.run([*command, *tried], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command
    pytest.skip("needs a mount namespace (unshare -m), which this system does not permit")


@pytest.fixture
def require_tool() -> Callable[[str], str]:
    """Gives `require_tool(name)`: the program's path; skips the test where it is not installed."""
    return tools.require_tool


@pytest.fixture(scope="session")
def sixty_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty JPEGs in three class folders; nobody writes there."""
    return class_folders(tmp_path_factory.mktemp("sixty") / "photos", 60, size=(40, 50))


@pytest.fixture(scope="session")
def sixty_packed(sixty_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bytes, object]:
    """The files of their packing by SMALL_SHARDS."""
    dest = tmp_path_factory.mktemp("sixty") / "photos.fl"
    fastload.pack(sixty_photos, dest, **SMALL_SHARDS)
    found = tree(dest)
    assert len(found) > 4
    return found


def _declare_torchvision_operators() -> "torch.library.Library | None":
    """Declares the two operators that torchvision's Python code asks for when it is imported.

    The torchvision of a package index is built for CUDA; beside a CPU-only torch its compiled
    library does not load, and `import torchvision` fails on the first operator that it misses.
    Transforms, datasets and models, which the tests compare with, need none of them.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        return None
    library = next(Path(found.submodule_search_locations[0]).glob("_C*.so"), None)
    if library is not None:
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))
            return None
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return operators


_OPERATORS = _declare_torchvision_operators()  # They live as long as this object.

settings.register_profile("local", deadline=None)
# The same examples in every run; and a loaded machine is no reason to fail.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "local")
