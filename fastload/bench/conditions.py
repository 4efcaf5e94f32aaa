"""Conditions of a measurement: machine and versions, without anything that identifies a user."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from fastload._version import __version__
from fastload.system.cpus import cpu_name, usable_cpus

_PACKAGES = (
    "numpy",
    "opencv-python",
    "opencv-python-headless",
    "h5py",
    "lmdb",
    "pillow",
    "torch",
    "torchvision",
    "turbojpeg",
)

# Read when the benchmark begins, because at its end the load would be that of the benchmark itself.
_LOAD_BEFORE = f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


def identified(is_smoke: bool = False) -> dict[str, Any]:
    """Return date, machine and versions; a smoke run is marked."""
    found = {"Python": platform.python_version(), "fastload": __version__}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return {
        "date": datetime.date.today().isoformat(),
        "machine": {
            "processor": cpu_name(),
            "usable_cpus": usable_cpus(),
            "memory_bytes": psutil.virtual_memory().total,
            "system": f"{platform.system()} {platform.machine()}",
            "load_before": _LOAD_BEFORE,
        },
        "versions": found,
        **({"smoke": "figures mean nothing"} if is_smoke else {}),
    }
