"""Recognition of boxes in a small annotation file by its first bytes."""

from __future__ import annotations

import codecs
import os
import re

# A row of a YOLO file: a class, then a box of four numbers or a polygon of six or more, relative to the
# image.
_YOLO_ROW = re.compile(rb"[0-9]+(\.0*)?(\s+-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?){4,}\s*")


def holds_boxes(path: str, head: bytes) -> bool:
    """Return True if the start of a .txt, .xml or .json file is one with boxes of YOLO, VOC or LabelMe."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".txt":
        rows = [row for row in head.removeprefix(codecs.BOM_UTF8).splitlines() if row.strip()][:3]
        return bool(rows) and all(_YOLO_ROW.fullmatch(row) for row in rows)
    return {".xml": b"<annotation", ".json": b'"shapes"'}.get(suffix, b"\0") in head
