"""Unpacking to images with a mask each."""

from __future__ import annotations

from pathlib import PurePosixPath

from fastload.shards.record import Record
from fastload.sources.writing import LayoutWriter, WrittenFiles


class MaskWriter(LayoutWriter):
    """Writer of one mask for each image, under the source's names."""

    def further_images(self, record: Record, image: PurePosixPath) -> WrittenFiles:
        if len(mask := record.stored("mask")):
            yield record["mask_path"], bytes(mask)
