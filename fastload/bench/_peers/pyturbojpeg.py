"""PyTurboJPEG, which decodes JPEG files with the libjpeg-turbo of the system."""

import importlib
from importlib.metadata import version

from fastload.bench._peers import Peer, call


def make(size: int) -> Peer:
    """Return the peer; none of its operations has a size."""
    turbojpeg = importlib.import_module("turbojpeg")
    decoder, rgb = turbojpeg.TurboJPEG(), turbojpeg.TJPF_RGB
    calls = [
        call("decode", "decode", decoder, pixel_format=rgb),
        call("decode-half", "decode(scaling_factor)", decoder, pixel_format=rgb, scaling_factor=(1, 2)),
    ]
    return Peer("PyTurboJPEG", version("PyTurboJPEG"), calls, jpeg="libjpeg-turbo", simd="libjpeg-turbo's")
