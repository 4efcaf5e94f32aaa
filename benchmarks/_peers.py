"""Libraries that are compared beside those of `fastload bench decode`."""

from __future__ import annotations

import importlib
import warnings

from fastload.bench.decoding import first_line
from fastload.bench.peers import Peer
from fastload.bench.results import Library


def load_peer(library: str, module_name: str) -> Peer | Library:
    """Import a library and return its peer, or the reason why it cannot be used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of other libraries' imports do not concern our users
            module = importlib.import_module(module_name)
            peer: Peer = module.make()
    except ModuleNotFoundError as error:
        needed = "" if str(error.name).lower() in library.lower() else f" (it needs {error.name})"
        return Library(library, None, reason=f"not installed{needed}")
    except Exception as error:
        # A library built for another torch, a missing shared library: the others are still compared.
        return Library(library, None, reason=f"cannot be used here: {first_line(error)}")
    return peer
