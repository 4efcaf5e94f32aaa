"""Where and with what a race was run: without that its figures mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import PIL
import torch

from fastload._version import __version__
from fastload.cli.demo.sides import BATCH_SIZE, IMAGE_SIDE
from fastload.images.opencv import cv2
from fastload.system.cpus import usable_cpus

# More than eight workers a side prove nothing further, and all sides' workers live at once.
_MOST_WORKERS = 8
_SHARED_MEMORY = "/dev/shm"
# torch's workers pass batches through shared memory, each having two ready and one in the making.
_BATCHES_A_WORKER = 3


@dataclass(frozen=True, slots=True)
class Images:
    """The images of a race.

    Attributes:
        count: How many there are.
        available: How many the visitor's folder holds; None where they were made.
        classes: The number of their classes; 0 for none.
        size_bytes: Of their files.
    """

    count: int
    available: int | None
    classes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What the race ran on.

    Attributes:
        cpu: The model's name.
        cpus: How many this process may use.
        system: Its name and release.
        versions: Of what took part, by name.
    """

    cpu: str
    cpus: int
    system: str
    versions: dict[str, str]


def this_machine() -> Machine:
    """Reads the machine and the versions."""
    return Machine(
        _cpu_model(),
        usable_cpus(),
        f"{platform.system()} {platform.release()}",
        {
            "fastload": __version__,
            "Python": platform.python_version(),
            "torch": str(torch.__version__),
            "OpenCV": cv2.__version__,
            "Pillow": PIL.__version__,
        },
    )


def default_workers() -> int:
    """One a usable CPU, up to eight, and no more than shared memory has room for.

    Docker gives containers 64 MB of it; a worker that finds none left dies of a bus error.
    """
    workers = min(usable_cpus(), _MOST_WORKERS)
    try:
        status = os.statvfs(_SHARED_MEMORY)
    except OSError:  # not Linux: no such limit
        return workers
    batch_bytes = BATCH_SIZE * 3 * IMAGE_SIDE**2
    room = status.f_bavail * status.f_frsize // (batch_bytes * _BATCHES_A_WORKER)
    return max(1, min(workers, room))


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stdout.strip():
            return done.stdout.strip()
    return platform.processor() or platform.machine()
