"""A comparison of decoding libraries that users run on their own machine."""

from __future__ import annotations

import importlib

from fastload.errors import LibraryMissingError


def require_libraries() -> None:
    """Raise LibraryMissingError unless Pillow, the reference, and OpenCV can be imported."""
    from fastload.images.opencv import require_opencv

    require_opencv()
    try:
        importlib.import_module("PIL.Image")
    except ImportError as error:
        message = f"Pillow is needed for the comparison and cannot be imported ({error}): pip install pillow"
        raise LibraryMissingError(message) from error
