"""Programs and packages that some tests need, and that may be missing."""

import importlib
import importlib.util
import os
import shutil
import warnings
from types import ModuleType
from typing import NoReturn

import pytest
import torch

# Where each program comes from.
TOOLS = {
    "jpegtran": "libjpeg-turbo-progs on Debian, jpeg-turbo in Homebrew, libjpeg-turbo in conda",
    "h5dump": "hdf5-tools on Debian, hdf5 in Homebrew and conda",
    "fusermount3": "fuse3 on Debian",
}

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_CUDA])
"""A device to be tested beside "cpu"."""


def require_tool(name: str) -> str:
    """The program's path; skips the test where it is not installed."""
    path = shutil.which(name)
    return skip(f"needs {name} ({TOOLS[name]})") if path is None else path


def require_framework(package: str) -> None:
    """Skips the test where a package of the marker `frameworks` is missing; imports nothing.

    With FASTLOAD_REQUIRE_FRAMEWORKS set, as in CI once they are installed, the test fails instead.
    """
    if importlib.util.find_spec(package) is None:
        reason = f"needs {package} ('make frameworks' installs it)"
        if os.environ.get("FASTLOAD_REQUIRE_FRAMEWORKS"):
            pytest.fail(f"{reason}; FASTLOAD_REQUIRE_FRAMEWORKS forbids to skip", pytrace=False)
        pytest.skip(reason)


def imported(name: str) -> ModuleType:
    """Imports a framework's module, without the warnings of its own that this gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def skip(reason: str) -> NoReturn:
    """Skips the test for what is missing; with FASTLOAD_REQUIRE_TOOLS set, as in CI, it fails instead."""
    if os.environ.get("FASTLOAD_REQUIRE_TOOLS"):
        pytest.fail(f"{reason}; FASTLOAD_REQUIRE_TOOLS forbids to skip", pytrace=False)
    pytest.skip(reason)
