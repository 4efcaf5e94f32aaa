"""Programs that some tests call, and that may be missing."""

import os
import shutil
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


def skip(reason: str) -> NoReturn:
    """Skips the test for what is missing; with FASTLOAD_REQUIRE_TOOLS set, as in CI, it fails instead."""
    if os.environ.get("FASTLOAD_REQUIRE_TOOLS"):
        pytest.fail(f"{reason}; FASTLOAD_REQUIRE_TOOLS forbids to skip", pytrace=False)
    pytest.skip(reason)
