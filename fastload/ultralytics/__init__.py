"""Ultralytics (YOLO) trained through fastload: `fastload.ultralytics.patch()` before a training run."""

from __future__ import annotations

from fastload.ultralytics.patching import patch, unpatch

__all__ = ["patch", "unpatch"]
