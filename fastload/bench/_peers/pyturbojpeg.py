"""PyTurboJPEG, which decodes JPEG files with the libjpeg-turbo of the system."""

import importlib
from importlib.metadata import version

from fastload.bench._peers import Peer


def make() -> Peer:
    """Return the peer."""
    turbojpeg = importlib.import_module("turbojpeg")
    decoder = turbojpeg.TurboJPEG()
    calls = [("decode", "decode", lambda data: decoder.decode(data, pixel_format=turbojpeg.TJPF_RGB))]
    return Peer("PyTurboJPEG", version("PyTurboJPEG"), calls, jpeg="libjpeg-turbo")
