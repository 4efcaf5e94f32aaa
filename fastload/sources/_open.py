"""Layouts of datasets with more than labels, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fastload.sources import _yolo
from fastload.sources.protocol import Source


class Layout(NamedTuple):
    """A layout: a quick check that a file or folder has it, and the listing of its splits.

    `recognise` reads names and the beginnings of a few files. `open` raises SourceError for a source of this
    layout that cannot be packed without loss.
    """

    recognise: Callable[[str], bool]
    open: Callable[[str], Mapping[str, Source]]


LAYOUTS: tuple[Layout, ...] = (Layout(_yolo.recognise, _yolo.open_yolo),)


def open_layout(path: str) -> dict[str, Source] | None:
    """List a file or folder by the first layout that recognises it; None if none does."""
    for layout in LAYOUTS:
        if layout.recognise(path):
            return dict(layout.open(path))
    return None
