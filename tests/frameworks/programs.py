"""Running the programs of this folder, which need processes of their own: ranks, and replaced classes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.commands import start_python, wait_until_gone

ROOT = Path(__file__).parents[2]


def environment(settings: Path) -> dict[str, str]:
    """Returns the variables of a program whose packages may keep their settings in a folder."""
    return {
        **os.environ,
        # Nothing is looked up in a network, installed or written into the user's home.
        "HF_HOME": str(settings / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "YOLO_AUTOINSTALL": "false",
        "YOLO_CONFIG_DIR": str(settings),
        "YOLO_OFFLINE": "true",
        "YOLO_VERBOSE": "false",
        # The host's own name need not be known to the resolver.
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    }


def run(settings: Path, *commands: Sequence[object]) -> list[str]:
    """Runs modules of this folder, all at once, to their ends; returns what they printed.

    They must succeed, neither print a traceback nor have one ignored, and leave no process behind.

    Args:
        settings: A folder in which packages may keep their settings.
        commands: For each process the module's name and its arguments.
    """
    processes = [
        start_python(
            *("-m", f"tests.frameworks.{module}", *arguments),
            cwd=ROOT,
            env=environment(settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Leaders of sessions of their own, so that all their processes can be found.
            start_new_session=True,
        )
        for module, *arguments in commands
    ]
    try:
        outputs = [process.communicate(timeout=280)[0] for process in processes]
        for process, output in zip(processes, outputs, strict=True):
            assert process.returncode == 0, output
            assert "Traceback" not in output, output
            wait_until_gone(process.pid)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    return outputs
