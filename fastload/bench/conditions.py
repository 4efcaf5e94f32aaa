"""Conditions of a measurement: machine, versions and commit, without anything that identifies a user."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import fastload
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
    """Return date, commit, machine and versions; a smoke run is marked."""
    found = {"Python": platform.python_version(), "fastload": fastload.__version__}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return {
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
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


def _commit() -> str:
    """Return the commit of this checkout, marked if the measured code differs from it; else `unknown`."""
    root = Path(fastload.__file__).parent.parent
    if not (root / ".git").exists():
        return "unknown"
    measured = ("fastload", "benchmarks/*.py")
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", root, *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (
                ("rev-parse", "--short", "HEAD"),
                ("status", "--porcelain", "--", *measured),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changes else head
