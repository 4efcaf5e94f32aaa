"""simplejpeg's side: it decodes JPEG files, nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from fastload.bench.sides.side import Side, Way


def make(size: int) -> Side:
    """Makes simplejpeg's ways."""
    decode = importlib.import_module("simplejpeg").decode_jpeg
    return Side(
        "simplejpeg",
        np.ascontiguousarray,
        (
            Way("read", "decode_jpeg", lambda path: decode(Path(path).read_bytes(), "RGB")),
            Way("decode", "decode_jpeg", lambda data: decode(data, "RGB")),
        ),
    )
