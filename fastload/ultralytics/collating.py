"""Base class of the collate functions for Ultralytics and YOLOv5."""

from __future__ import annotations

from fastload.loader.replacing import DescribedCollate


class PatchedCollate(DescribedCollate):
    """Base class of the collate functions of a patched Ultralytics or YOLOv5."""

    to_keep = "fastload.ultralytics.patch(), before the training"
