"""What all tests share: tools that may be missing, torchvision beside CPU-only torch, profiles."""

import contextlib
import importlib.util
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# Where each program comes from.
TOOLS = {
    "jpegtran": "libjpeg-turbo-progs on Debian, jpeg-turbo in Homebrew, libjpeg-turbo in conda",
    "h5dump": "hdf5-tools on Debian, hdf5 in Homebrew and conda",
    "fusermount3": "fuse3 on Debian",
}


# A shell ignores Ctrl-C for what it starts in the background, and children inherit that: tests of
# interruptions would wait for what never comes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def require_tool() -> Callable[[str], str]:
    """Gives `require_tool(name)`: the program's path; skips the test where it is not installed.

    With FASTLOAD_REQUIRE_TOOLS set, as in CI, the test fails instead.
    """

    def path_of(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        reason = f"needs {name} ({TOOLS[name]})"
        if os.environ.get("FASTLOAD_REQUIRE_TOOLS"):
            pytest.fail(f"{reason}; FASTLOAD_REQUIRE_TOOLS forbids to skip", pytrace=False)
        pytest.skip(reason)

    return path_of


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
