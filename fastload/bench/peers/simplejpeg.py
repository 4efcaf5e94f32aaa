"""simplejpeg, which decodes JPEG files and nothing else."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import numpy as np

from fastload.bench.peers.peer import Peer


def make(size: int) -> Peer:
    """Return the peer; no operation of it has a size."""
    decode = importlib.import_module("simplejpeg").decode_jpeg
    return Peer(
        "simplejpeg",
        version("simplejpeg"),
        np.ascontiguousarray,
        {
            "decode": {"decode_jpeg": lambda data: decode(data, "RGB")},
        },
        jpeg="libjpeg-turbo",
        simd="libjpeg-turbo's",
    )
