"""The libraries that are compared, one module each; a module is imported only where its library is there."""

from __future__ import annotations

import importlib
import warnings

from fastload.bench.sides.side import Side
from fastload.errors import ToolMissingError

MODULES = {
    "PIL": "pil",
    "OpenCV": "opencv",
    "fastload": "ours",
    "torchvision": "torchvision",
    "simplejpeg": "simplejpeg",
    "PyTurboJPEG": "pyturbojpeg",
    "albumentations": "albumentations",
    "kornia": "kornia",
}
"""The module of each library, in the order in which they are shown."""


def load_side(library: str, size: int) -> Side:
    """Imports a library and makes its side.

    Args:
        library: A key of `MODULES`.
        size: The side of crops and resizes, in pixels.

    Raises:
        ToolMissingError: It is not installed, or cannot be used; says why, in a few words.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what others' imports warn of is not for our users
            module = importlib.import_module(f"fastload.bench.sides.{MODULES[library]}")
            side: Side = module.make(size)
    except ModuleNotFoundError as error:
        whose = "" if str(error.name).lower() in library.lower() else f" (it needs {error.name})"
        raise ToolMissingError(f"not installed{whose}") from error
    except Exception as error:
        # Whatever hinders it, a library built for another torch or an absent shared library among it,
        # is no reason to stop comparing the others.
        raise ToolMissingError(f"cannot be used here: {first_line(error)}") from error
    return side


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
