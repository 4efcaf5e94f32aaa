"""OpenCV, for all that uses it: where it cannot be imported, each use says how to mend that."""

from __future__ import annotations

from typing import Any

from fastload.errors import LibraryMissingError

__all__ = ["cv2", "require_opencv"]


class _Missing:
    """Stands for OpenCV: what needs none of it can be imported all the same, the DataLoader first of all."""

    def __init__(self, cause: ImportError) -> None:
        self._cause = cause

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.isupper():
            return 0  # a constant, which modules look up as they are imported, is of no use by itself
        raise LibraryMissingError(
            f"OpenCV is needed here and cannot be imported ({self._cause}); these two commands mend it: "
            "pip uninstall -y opencv-python, then pip install opencv-python-headless"
        ) from self._cause


try:
    import cv2
except ImportError as error:
    cv2 = _Missing(error)  # type: ignore[assignment]


def require_opencv() -> None:
    """Checks that OpenCV is there, before work is begun that would fail image by image.

    Raises:
        LibraryMissingError: It cannot be imported.
    """
    cv2.imdecode  # noqa: B018 - found, or the error
