"""Base of the writers of annotated layouts, for the files that `unpack` writes beside the images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.sources.protocol import Details

WrittenFiles = Iterator[tuple[str, bytes]]
"""Paths relative to the folder of the dataset, each with the content of its file."""


class LayoutWriter:
    """Writer of one split's annotations; `split` is "" for a dataset without splits.

    `images` holds the paths of the images written so far.
    """

    def __init__(self, manifest: Manifest, split: str) -> None:
        self.manifest = manifest
        self.split = split
        self.images: list[PurePosixPath] = []
        self.details: Details = dict(manifest.details)
        self.names = frozenset(field.name for field in manifest.fields)

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        """Yield the other images of a record whose first one has been written to the path `image`."""
        if "mask_path" in self.names and len(mask := record.stored("mask")):
            yield record["mask_path"], bytes(mask)

    def annotations(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        """Yield the annotation files of a record; `last_files` yields those of several records."""
        yield from ()

    def last_files(self, writers: Sequence[LayoutWriter]) -> WrittenFiles:
        """Yield the files that describe the split; the first writer also yields those of the dataset."""
        yield from ()


def number_text(value: float) -> str:
    """Return the shortest text of a number, without ".0" for an integer."""
    text = repr(float(value))
    return text.removesuffix(".0")


def parallel(path: PurePosixPath, folder: str, suffix: str) -> PurePosixPath:
    """Return a path with its last folder `images` replaced by `folder`, and with another suffix."""
    parts = list(path.parts)
    places = [place for place, part in enumerate(parts[:-1]) if part == "images"]
    if places:
        parts[places[-1]] = folder
    return PurePosixPath(*parts).with_suffix(suffix)
