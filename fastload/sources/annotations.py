"""Recognition of annotation files, one for each image, beside the images."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastload.sources.sniffing import holds_boxes
from fastload.sources.walking import FolderEntries, is_image, read_part, stem_of

_BOX_SUFFIXES = (".txt", ".xml", ".json")
_SAMPLED = 32


def boxes_beside(folder: FolderEntries, suffixes: tuple[str, ...] = _BOX_SUFFIXES) -> str | None:
    """Return the first file with boxes if at least half of a folder's images have a file beside them."""
    stems = {stem_of(name) for name in folder.files if is_image(name)}
    paired = [name for name in folder.files if name.lower().endswith(suffixes) and stem_of(name) in stems]
    return first_with_boxes(folder.path, paired) if 2 * len(paired) >= len(stems) else None


def first_with_boxes(folder: str, names: Sequence[str]) -> str | None:
    """Return the first of some files that holds boxes of YOLO, Pascal VOC or LabelMe."""
    paths = [os.path.join(folder, name) for name in names[:_SAMPLED]]
    found = (name for name, path in zip(names, paths, strict=False) if holds_boxes(path, read_part(path)))
    return next(found, None)
