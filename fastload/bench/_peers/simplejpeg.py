"""simplejpeg, which decodes JPEG files and nothing else."""

import importlib
from importlib.metadata import version

from fastload.bench._peers import Peer, call


def make(size: int) -> Peer:
    """Return the peer; none of its operations has a size."""
    calls = [call("decode", "decode_jpeg", importlib.import_module("simplejpeg"), "RGB")]
    return Peer("simplejpeg", version("simplejpeg"), calls, jpeg="libjpeg-turbo", simd="libjpeg-turbo's")
