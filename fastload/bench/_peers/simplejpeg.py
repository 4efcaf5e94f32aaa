"""simplejpeg, which decodes JPEG files and nothing else."""

import importlib
from importlib.metadata import version

from fastload.bench._peers import Peer


def make() -> Peer:
    """Return the peer."""
    simplejpeg = importlib.import_module("simplejpeg")
    calls = [("decode", "decode_jpeg", lambda data: simplejpeg.decode_jpeg(data, "RGB"))]
    return Peer("simplejpeg", version("simplejpeg"), calls, jpeg="libjpeg-turbo")
