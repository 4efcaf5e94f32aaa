"""Contact sheets: a few samples of a dataset in one picture, with classes, boxes, masks and keypoints."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastload.datasets._drawing import draw_objects, write_text
from fastload.datasets.images import ImageDataset
from fastload.errors import DamageError, DecodeError, OptionError, PackError
from fastload.images.arrays import Pixels
from fastload.images.decode import encode
from fastload.images.resize import SizeLimit, resize
from fastload.shards.manifest import looks_packed
from fastload.transforms.levels.converting import PILToTensor

_CAPTION, _GAP, _SHEET_WIDTH = 18, 6, 1206
_SMALL_TILE, _LARGE_TILE = 144, 294  # without and with boxes or masks
_MOST_IMAGES = 40
_BACKGROUND, _INK = 255, (60, 60, 60)

# Characters of a caption that fit into each pixel of the width of a tile.
_CHARACTERS_PER_PIXEL = 1 / 7.5


def write_sheet(dataset: Any, file: Path, most: int | None = None) -> int:
    """Write a PNG with evenly spaced samples of a dataset, each above the name of its class.

    Boxes, masks, polygons, keypoints and oriented boxes are drawn, in a colour for each class.

    Args:
        dataset: A map-style dataset of (image, target), or of dicts with an `image`.
        file: The file to write.
        most: The most samples to show: 40 by default, or 12 with objects.

    Returns:
        The number of samples shown.

    Raises:
        OptionError: The file is not a .png, lies in a packed dataset, or a sample holds no image.
        PackError: The file cannot be written.
    """
    require_png(file)
    if isinstance(dataset, ImageDataset) and not dataset.has_images:
        raise OptionError(f"{dataset}: a preview shows images, and its records have none: read dataset[0]")
    has_objects = _first_has_objects(dataset)
    tile = _LARGE_TILE if has_objects else _SMALL_TILE
    most = most or (_MOST_IMAGES if not has_objects else 12)
    count = min(len(dataset), most)
    columns = min(max(count, 1), (_SHEET_WIDTH - _GAP) // (tile + _GAP))
    rows = max(-(-count // columns), 1)
    shape = rows * (tile + _CAPTION + _GAP) + _GAP, columns * (tile + _GAP) + _GAP, 3
    sheet = np.full(shape, _BACKGROUND, np.uint8)
    for place in range(count):
        row, column = divmod(place, columns)
        top, left = _GAP + row * (tile + _CAPTION + _GAP), _GAP + column * (tile + _GAP)
        picture, caption = _tile(dataset, place * len(dataset) // count, tile)
        height, width = picture.shape[:2]
        down, right = top + (tile - height) // 2, left + (tile - width) // 2
        sheet[down : down + height, right : right + width] = picture
        write_text(sheet, caption[: int(tile * _CHARACTERS_PER_PIXEL)], left, top + tile + _CAPTION - 5, _INK)
    try:
        file.write_bytes(encode(sheet, ".png"))
    except OSError as error:
        raise PackError(f"{file}: cannot be written: {error.strerror}") from error
    return count


def require_png(file: Path) -> None:
    """Raise OptionError unless a preview may be written to this file."""
    if file.suffix.lower() != ".png" or any(map(looks_packed, file.absolute().parents)):
        raise OptionError(f"{file}: a preview must be a .png file outside of any packed dataset")


def _tile(dataset: Any, index: int, side: int) -> tuple[Pixels, str]:
    """Return the picture of a sample, at most as large as a tile, and its caption."""
    try:
        image, target = _sample(dataset, index)
    except (DamageError, DecodeError):
        return np.zeros((side, side, 3), np.uint8), "unreadable"
    pixels = _to_levels(image)
    size = pixels.shape[0], pixels.shape[1]
    height, width = SizeLimit(max_side=side).target(*size) or size
    if _has_objects(target) and max(size) < side:
        height, width = round(height * side / max(size)), round(width * side / max(size))
    picture = resize(np.ascontiguousarray(pixels), height, width)
    classes = getattr(dataset, "classes", ())
    if not _has_objects(target):
        return picture, _class_name(classes, target)
    draw_objects(picture, target, size, classes)
    count = len(target.get("boxes", ()))
    return picture, f"{index}: {size[0]} x {size[1]}, {count} object{'' if count == 1 else 's'}"


def _sample(dataset: Any, index: int) -> tuple[Any, Any]:
    sample = dataset[index]
    if isinstance(sample, Mapping) and "image" in sample:
        return sample["image"], sample
    if isinstance(sample, Sequence) and len(sample) > 1:
        return sample[0], sample[1]
    raise OptionError(
        f"a sample must be (image, target) or a dict with an 'image', got {type(sample).__name__} at {index}"
    )


def _first_has_objects(dataset: Any) -> bool:
    """Return True if the first readable sample has objects or a mask."""
    for index in range(len(dataset)):
        with contextlib.suppress(DamageError, DecodeError):
            return _has_objects(_sample(dataset, index)[1])
    return False


def _has_objects(target: object) -> bool:
    return isinstance(target, Mapping) and ("boxes" in target or "mask" in target)


def _to_levels(image: object) -> Pixels:
    """Return an image of any type as RGB, uint8; floats beyond 0…1, as after Normalize, are stretched."""
    pixels: Pixels = PILToTensor()(image).permute(1, 2, 0).numpy()
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
        pixels = ((pixels - low) * (255 / max(high - low, 1e-9))).clip(0, 255).astype(np.uint8)
    return pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, :1].repeat(3, axis=2)


def _class_name(classes: Sequence[str], target: object) -> str:
    label = target.get("label", -1) if isinstance(target, Mapping) else target
    if not isinstance(label, int) or not 0 <= label < len(classes):
        return ""
    return str(classes[label])
