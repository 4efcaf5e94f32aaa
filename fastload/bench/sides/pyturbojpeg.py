"""PyTurboJPEG's side: it decodes JPEG files, with the libjpeg-turbo of the system."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from fastload.bench.sides.side import Side, Way


def make(size: int) -> Side:
    """Makes PyTurboJPEG's ways."""
    turbojpeg = importlib.import_module("turbojpeg")
    decoder, rgb = turbojpeg.TurboJPEG(), turbojpeg.TJPF_RGB
    half = {"pixel_format": rgb, "scaling_factor": (1, 2)}
    return Side(
        "PyTurboJPEG",
        np.ascontiguousarray,
        (
            Way("read", "decode", lambda path: decoder.decode(Path(path).read_bytes(), pixel_format=rgb)),
            Way("decode", "decode", lambda data: decoder.decode(data, pixel_format=rgb)),
            Way("decode-half", "decode(scaling_factor)", lambda data: decoder.decode(data, **half)),
        ),
    )
