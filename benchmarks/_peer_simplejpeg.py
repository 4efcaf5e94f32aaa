"""simplejpeg, which decodes JPEG with its own libjpeg-turbo, and OpenCV for the rest of a pipeline."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Any

from fastload.bench.peers import Peer, Run, detection, pad, steps_with


def make() -> Peer:
    """Return the peer."""
    simplejpeg: Any = importlib.import_module("simplejpeg")
    steps = steps_with(lambda data: simplejpeg.decode_jpeg(data, "RGB"))
    calls: list[tuple[str, str, Run]] = [
        ("decode", "decode_jpeg", steps.decode),
        ("detection", "decode_jpeg, INTER_LINEAR", detection(steps, pad)),
        ("training", "decode_jpeg, INTER_LINEAR", steps.training),
    ]
    return Peer("simplejpeg", version("simplejpeg"), calls, jpeg="its own libjpeg-turbo")
