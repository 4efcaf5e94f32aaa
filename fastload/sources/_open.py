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


LAYOUTS: tuple[SourceLayout, ...] = (
    SourceLayout(_yolo.recognise, _yolo.open_yolo),
    SourceLayout(_coco.recognise, _coco.open_coco),
    SourceLayout(_voc.recognise, _voc.open_voc),
    SourceLayout(_masks.recognise, _masks.open_masks),
    SourceLayout(is_webdataset, open_webdataset),
    SourceLayout(is_huggingface, open_huggingface),
    SourceLayout(is_lmdb, open_lmdb),
    SourceLayout(is_hdf5, open_hdf5),
)


def has_layout(path: str) -> bool:
    """Return True if `open_layout` can list a file or folder."""
    return any(layout.recognise(path) for layout in LAYOUTS)


def open_layout(path: str) -> dict[str, Source] | None:
    """List a file or folder by the first layout that recognises it; None if none does."""
    for layout in LAYOUTS:
        if layout.recognise(path):
            return dict(layout.open(path))
    return None
