"""Contact sheets: a few images of a packed dataset in one picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastload.datasets.packed import PackedDataset
from fastload.errors import DamageError, DecodeError, OptionError, PackError
from fastload.images.decode import encode
from fastload.images.opencv import cv2
from fastload.images.resize import SizeLimit, resize
from fastload.shards.manifest import looks_packed

_COLUMNS, _ROWS = 8, 5
_TILE, _CAPTION, _GAP = 144, 18, 6
_BACKGROUND, _INK = 255, (60, 60, 60)


def write_contact_sheet(path: str | os.PathLike[str], file: Path) -> None:
    """Write a PNG with up to 40 evenly spaced images of a packed dataset, each above the name of its class.

    Raises:
        FormatError: The path holds no packed dataset.
        OptionError: The file is not a .png, or lies in a packed dataset.
        PackError: The file cannot be written.
    """
    if file.suffix.lower() != ".png" or any(map(looks_packed, file.absolute().parents)):
        raise OptionError(f"{file}: a preview must be a .png file outside of any packed dataset")
    dataset = PackedDataset(path, transform=np.asarray)
    count = min(len(dataset), _COLUMNS * _ROWS)
    rows = max(-(-count // _COLUMNS), 1)
    height = rows * (_TILE + _CAPTION + _GAP) + _GAP
    width = min(max(count, 1), _COLUMNS) * (_TILE + _GAP) + _GAP
    sheet = np.full((height, width, 3), _BACKGROUND, np.uint8)
    for place in range(count):
        row, column = divmod(place, _COLUMNS)
        top, left = _GAP + row * (_TILE + _CAPTION + _GAP), _GAP + column * (_TILE + _GAP)
        _draw(sheet, dataset, place * len(dataset) // count, top, left)
    try:
        file.write_bytes(encode(sheet, ".png"))
    except OSError as error:
        raise PackError(f"{file}: cannot be written: {error.strerror}") from error


def _draw(sheet: NDArray[np.uint8], dataset: PackedDataset, index: int, top: int, left: int) -> None:
    try:
        image, target = dataset[index]
        caption = _caption(dataset, target)
    except (DamageError, DecodeError):
        image, caption = np.zeros((_TILE, _TILE, 3), np.uint8), "unreadable"
    height, width = SizeLimit(max_side=_TILE).target(*image.shape[:2]) or image.shape[:2]
    down, right = top + (_TILE - height) // 2, left + (_TILE - width) // 2
    sheet[down : down + height, right : right + width] = resize(image, height, width)
    place = (left, top + _TILE + _CAPTION - 5)
    cv2.putText(sheet, caption, place, cv2.FONT_HERSHEY_SIMPLEX, 0.4, _INK, 1, cv2.LINE_AA)


def _caption(dataset: PackedDataset, target: object) -> str:
    label = target.get("label", -1) if isinstance(target, dict) else target
    if not isinstance(label, int) or not 0 <= label < len(dataset.classes):
        return ""
    name = dataset.classes[label]
    # OpenCV's fonts have only ASCII, and a tile is about 20 letters wide.
    return name.encode("ascii", "replace").decode()[:19]
