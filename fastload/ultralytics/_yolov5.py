"""YOLOv5's loaders (`utils.dataloaders` of its repository) on fastload's."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def replacements(module: ModuleType) -> list[tuple[Any, str, Any]]:
    """Return what replaces attributes of YOLOv5's module: (owner, name, value)."""
    return []
