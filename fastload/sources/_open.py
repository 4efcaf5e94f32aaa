"""Layouts of datasets with more than labels, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fastload.sources import _coco, _masks, _voc, _yolo
from fastload.sources._hdf5_layouts import is_hdf5, open_hdf5
from fastload.sources._huggingface import is_huggingface, open_huggingface
from fastload.sources._lmdb_layouts import is_lmdb, open_lmdb
from fastload.sources._webdataset import is_webdataset, open_webdataset
from fastload.sources.protocol import Source


class SourceLayout(NamedTuple):
    """A layout: a quick check that a file or folder has it, and the listing of its splits.

    `recognise` reads names and the beginnings of a few files. `open` raises SourceError for a source of this
    layout that cannot be packed without loss.
    """

    recognise: Callable[[str], bool]
    open: Callable[[str], Mapping[str, Source]]


# The kind of dataset, and the layout.
_ANNOTATED: tuple[tuple[str, SourceLayout], ...] = (
    ("a YOLO dataset", SourceLayout(_yolo.recognise, _yolo.open_yolo)),
    ("a COCO dataset", SourceLayout(_coco.recognise, _coco.open_coco)),
    ("a Pascal VOC dataset", SourceLayout(_voc.recognise, _voc.open_voc)),
    ("a segmentation dataset of images and masks", SourceLayout(_masks.recognise, _masks.open_masks)),
)
LAYOUTS: tuple[SourceLayout, ...] = (
    *(layout for _, layout in _ANNOTATED),
    SourceLayout(is_webdataset, open_webdataset),
    SourceLayout(is_huggingface, open_huggingface),
    SourceLayout(is_lmdb, open_lmdb),
    SourceLayout(is_hdf5, open_hdf5),
)


def annotated_kind(path: str) -> str | None:
    """Return the kind of a folder of images with annotations; None for another source."""
    return next((kind for kind, layout in _ANNOTATED if layout.recognise(path)), None)


def open_layout(path: str) -> dict[str, Source] | None:
    """List a file or folder by the first layout that recognises it; None if none does."""
    for layout in LAYOUTS:
        if layout.recognise(path):
            return dict(layout.open(path))
    return None
