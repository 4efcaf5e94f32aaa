"""PyTurboJPEG, which decodes JPEG with the system's libjpeg-turbo, and OpenCV for the rest of a pipeline.

Another project, whose wheel bundles the library alone, has a module of the same name.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

from fastload.bench.peers import Peer, Run, detection, pad, steps_with


def make() -> Peer:
    """Return the peer."""
    turbojpeg: Any = importlib.import_module("turbojpeg")
    if not hasattr(turbojpeg, "TurboJPEG"):
        raise ModuleNotFoundError("the module turbojpeg is another project's", name="turbojpeg")
    decoder = turbojpeg.TurboJPEG()
    steps = steps_with(lambda data: decoder.decode(data, pixel_format=turbojpeg.TJPF_RGB))
    calls: list[tuple[str, str, Run]] = [
        ("decode", "decode", steps.decode),
        ("detection", "decode, INTER_LINEAR", detection(steps, pad)),
        ("training", "decode, INTER_LINEAR", steps.training),
    ]
    return Peer("PyTurboJPEG", version("PyTurboJPEG"), calls, jpeg="the system's libjpeg-turbo")
