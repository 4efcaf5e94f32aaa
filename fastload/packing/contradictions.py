"""Contradictions between the images of a record and what is stored about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError
from fastload.images.encodings import nv12_size
from fastload.images.header import read_header
from fastload.images.jpeg import SOI, index_tiles
from fastload.shards.manifest import Manifest
from fastload.shards.record import Record
from fastload.shards.schema import image_of


def contradiction(record: Record, manifest: Manifest, kept: set[str]) -> str | None:
    """Return a contradiction between a record's images and what is stored about them, or None."""
    shape = record.image_shape() if image_of(manifest.fields) is not None else None
    if shape == (0, 0, 0) and record.key not in kept:
        return "its image has no shape, and the manifest does not list it as kept though unreadable"
    if manifest.image_shape is not None and shape != manifest.image_shape:
        return f"its image has the shape {shape}, the manifest says that all have {manifest.image_shape}"
    counts = {field.name: len(record[field.name]) for field in manifest.fields if field.is_of_objects}
    if len({*counts.values()}) > 1:
        got = ", ".join(f"{count} in {name}" for name, count in counts.items())
        return f"its fields must have one row for each object, got {got}"
    # Labels of a dataset without class names may be any numbers.
    labels = record["labels"] if manifest.classes and counts.get("labels") else np.zeros(0)
    if ((labels < 0) | (labels >= len(manifest.classes))).any():
        return f"its labels must be from 0 to {len(manifest.classes) - 1}, got {labels.tolist()}"
    for field in manifest.fields:
        if field.kind != "image" or (size := record.image_shape(field.name)) == (0, 0, 0):
            continue
        grid: tuple[int, ...] = tuple(np.frombuffer(record.stored(f"{field.name}/grid"), "<u4").tolist())
        tiles = np.frombuffer(record.stored(f"{field.name}/tiles"), "<u2")
        data = bytes(record.stored(field.name))
        found = _image_contradiction(field.encoding or "", data, size, grid, tiles)
        if found:
            return f"{field.name}: {found}"
    return None


def _image_contradiction(
    encoding: str, data: bytes, shape: tuple[int, int, int], grid: tuple[int, ...], tiles: NDArray[np.uint16]
) -> str | None:
    """Return how the stored bytes of an image contradict its record; None if they agree.

    `shape` is (height, width, channels), not zeros; `grid` and `tiles` are as stored, see `TileIndex`. JPEG
    and PNG are checked by their headers, without decoding: 30 µs for a JPEG of 100 KB.
    """
    height, width, channels = shape
    has_tiles = any(grid) or tiles.size > 0
    if not (height and width and 1 <= channels <= 4):
        return f"its shape is {shape}, which is impossible for an image"
    if has_tiles and encoding not in ("tiled", "jpeg"):
        return f"it has tiles, which {encoding} never has"
    if encoding in ("raw", "yuv420"):
        if channels != 3:
            return f"its shape is {shape}, but {encoding} has 3 channels"
        size, wanted = len(data), nv12_size(height, width) if encoding == "yuv420" else height * width * 3
        return None if size == wanted else f"{encoding} of shape {shape} has {wanted:,} bytes, not {size:,}"
    try:
        if encoding == "jpeg" and not data.startswith(SOI):
            raise DecodeError(f"a JPEG must start with {SOI!r}, got {data[:2]!r}")
        found = read_header(data).shape
        index = index_tiles(data) if has_tiles and data.startswith(SOI) else None
    except DecodeError as error:
        return f"its shape is stored as {shape}, but it is not a readable image: {error}"
    if found != shape:
        return f"its shape is stored as {shape}, its header says {found}"
    if has_tiles and (index is None or index.grid != grid or not np.array_equal(index.lengths, tiles)):
        return "its tiles are not where the index says"
    return None
