"""Layouts of datasets with more than labels, in the order in which they are tried.

Each layout is a function that lists a file or folder by split. It returns None for a path of another layout,
after reading names and the beginnings of a few files, and raises SourceError for a dataset that cannot be
packed without loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastload.sources.coco.source import open_coco
from fastload.sources.databases.hdf5 import open_hdf5
from fastload.sources.databases.lmdb import open_lmdb
from fastload.sources.huggingface.source import open_huggingface
from fastload.sources.masks.source import open_masks
from fastload.sources.protocol import Source
from fastload.sources.voc.source import open_voc
from fastload.sources.webdataset.source import open_webdataset
from fastload.sources.yolo.source import open_yolo

OpenLayout = Callable[[str], Mapping[str, Source] | None]

_ANNOTATED: dict[str, OpenLayout] = {
    "a YOLO dataset": open_yolo,
    "a COCO dataset": open_coco,
    "a Pascal VOC dataset": open_voc,
    "a segmentation dataset of images and masks": open_masks,
}
_OTHER_PROGRAMS: tuple[OpenLayout, ...] = (open_webdataset, open_huggingface, open_lmdb, open_hdf5)


def annotated_kind(path: str) -> str | None:
    """Return the kind of a folder of images with annotations; None for any other source."""
    return next((kind for kind, opens in _ANNOTATED.items() if opens(path) is not None), None)


def open_layout(path: str) -> dict[str, Source] | None:
    """List a file or folder by the first layout that fits; return None if none does."""
    opened = (opens(path) for opens in (*_ANNOTATED.values(), *_OTHER_PROGRAMS))
    return next((dict(found) for found in opened if found is not None), None)
