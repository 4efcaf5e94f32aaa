"""OpenCV, with a clear error on first use if it cannot be imported."""

from __future__ import annotations

from typing import Any

from fastload.errors import LibraryMissingError

__all__ = ["cv2", "require_opencv"]


class _MissingOpenCV:
    """Stand-in for OpenCV, so that whatever works without it can be imported, the DataLoader above all."""

    def __init__(self, cause: ImportError) -> None:
        self._cause = cause

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.isupper():
            return 0  # constants are looked up when modules are imported, and used only in calls
        raise LibraryMissingError(
            f"OpenCV is needed here and cannot be imported ({self._cause}); these two commands fix it: "
            "pip uninstall -y opencv-python, then pip install opencv-python-headless"
        ) from self._cause


try:
    import cv2
except ImportError as error:
    cv2 = _MissingOpenCV(error)  # type: ignore[assignment]


def has_opencv() -> bool:
    """Return True if OpenCV can be imported."""
    return not isinstance(cv2, _MissingOpenCV)


def require_opencv() -> None:
    """Raise LibraryMissingError if OpenCV cannot be imported, before work that would fail on each image."""
    cv2.imdecode  # noqa: B018 - raises if it is missing
