"""PyTurboJPEG, which decodes JPEG files with the libjpeg-turbo of the system."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import numpy as np

from fastload.bench.peers.peer import Peer


def make(size: int) -> Peer:
    """Return the peer; no operation of it has a size."""
    turbojpeg = importlib.import_module("turbojpeg")
    decoder, rgb = turbojpeg.TurboJPEG(), turbojpeg.TJPF_RGB
    half = {"pixel_format": rgb, "scaling_factor": (1, 2)}
    return Peer(
        "PyTurboJPEG",
        version("PyTurboJPEG"),
        np.ascontiguousarray,
        {
            "decode": {"decode": lambda data: decoder.decode(data, pixel_format=rgb)},
            "decode-half": {"decode(scaling_factor)": lambda data: decoder.decode(data, **half)},
        },
        jpeg="libjpeg-turbo",
        simd="libjpeg-turbo's",
    )
