"""Libraries that are compared, one module each, imported only if the library is installed."""

from __future__ import annotations

import importlib
import warnings

from fastload.bench.peers.peer import Peer
from fastload.errors import ToolMissingError

MODULES = {
    "PIL": "pil",
    "OpenCV": "opencv",
    "fastload": "fastload",
    "torchvision": "torchvision",
    "simplejpeg": "simplejpeg",
    "PyTurboJPEG": "pyturbojpeg",
    "albumentations": "albumentations",
    "kornia": "kornia",
}
"""The module of each library, in the order of the tables."""


def load_peer(library: str, size: int) -> Peer:
    """Import a library and return its peer, with crops and resizes of `size` × `size` pixels.

    Raises:
        ToolMissingError: It is not installed or cannot be used; the message is the reason in a few words.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of other libraries' imports do not concern our users
            module = importlib.import_module(f"fastload.bench.peers.{MODULES[library]}")
            peer: Peer = module.make(size)
    except ModuleNotFoundError as error:
        needed = "" if str(error.name).lower() in library.lower() else f" (it needs {error.name})"
        raise ToolMissingError(f"not installed{needed}") from error
    except Exception as error:
        # A library built for another torch, a missing shared library: the others are still compared.
        raise ToolMissingError(f"cannot be used here: {first_line(error)}") from error
    return peer


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
