"""Contact sheets: a few samples of a dataset in one picture, with classes, boxes, masks and keypoints."""

from __future__ import annotations

import colorsys
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.datasets.images import ImageDataset
from fastload.errors import DamageError, DecodeError, DestinationError, OptionError
from fastload.images.arrays import Pixels
from fastload.images.decode import encode
from fastload.images.opencv import cv2
from fastload.images.polygons import drawn
from fastload.images.resize import SizeLimit, resize
from fastload.shards.manifest import looks_packed
from fastload.transforms.levels.converting import PILToTensor
from fastload.transforms.samples import SampleParts

_CAPTION, _GAP, _SHEET_WIDTH = 18, 6, 1206
_SMALL_TILE, _LARGE_TILE = 144, 294  # without and with boxes or masks
_MOST_IMAGES = 40
_BACKGROUND, _INK = 255, (60, 60, 60)

Colour = tuple[int, int, int]

_FONT, _FONT_SCALE, _MOST_CHARACTERS = cv2.FONT_HERSHEY_SIMPLEX, 0.38, 20
_OPACITY = 0.4
_PERCENTILES = (2, 98)  # which become black and white, as usual for images of the earth
_FRACTION_BITS = 4  # in coordinates for OpenCV's drawing functions

# The golden ratio as a share of the circle of hues: neighbouring classes get very different colours.
_HUE_STEP = 0.618034

# Characters of a caption that fit into each pixel of the width of a tile.
_CHARACTERS_PER_PIXEL = 1 / 7.5


class MapStyle(Protocol):
    """A map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> object: ...


def write_sheet(dataset: MapStyle, file: Path, most: int | None = None) -> int:
    """Write a PNG with evenly spaced samples of a dataset, each above the name of its class.

    Boxes, masks, polygons, keypoints and oriented boxes are drawn, in a colour for each class. Images
    that are not RGB of 8 bits are stretched, with their first three channels as colours, as a legend says.

    Args:
        dataset: A map-style dataset of (image, target), or of dicts with an `image`.
        file: The file to write.
        most: The most samples to show: 40 by default, or 12 with objects.

    Returns:
        The number of samples shown.

    Raises:
        OptionError: The file is not a .png, lies in a packed dataset, or a sample holds no image.
        DestinationError: The file cannot be written.
    """
    require_png(file)
    if isinstance(dataset, ImageDataset) and not dataset.has_images:
        raise OptionError(f"{dataset}: a preview shows images, and its records have none: read dataset[0]")
    first = _first_readable(dataset)
    has_objects, legend = _has_objects(first[1]), _legend_of(first[0])
    tile = _LARGE_TILE if has_objects else _SMALL_TILE
    most = most or (_MOST_IMAGES if not has_objects else 12)
    count = min(len(dataset), most)
    columns = min(max(count, 1), (_SHEET_WIDTH - _GAP) // (tile + _GAP))
    rows = max(-(-count // columns), 1)
    begin = _GAP + (_CAPTION if legend else 0)
    width = max(columns * (tile + _GAP) + _GAP, int(len(legend) / _CHARACTERS_PER_PIXEL) + 2 * _GAP)
    sheet = np.full((rows * (tile + _CAPTION + _GAP) + begin, width, 3), _BACKGROUND, np.uint8)
    _write(sheet, legend, _GAP, _CAPTION - 5, _INK)
    for place in range(count):
        row, column = divmod(place, columns)
        top, left = begin + row * (tile + _CAPTION + _GAP), _GAP + column * (tile + _GAP)
        picture, caption = _tile(dataset, place * len(dataset) // count, tile)
        height, width = picture.shape[:2]
        down, right = top + (tile - height) // 2, left + (tile - width) // 2
        sheet[down : down + height, right : right + width] = picture
        _write(sheet, caption[: int(tile * _CHARACTERS_PER_PIXEL)], left, top + tile + _CAPTION - 5, _INK)
    try:
        file.write_bytes(encode(sheet, ".png"))
    except OSError as error:
        raise DestinationError(f"{file}: cannot be written: {error.strerror}: choose another file") from error
    return count


def require_png(file: Path) -> None:
    """Raise OptionError unless a preview may be written to this file."""
    if file.suffix.lower() != ".png" or any(map(looks_packed, file.absolute().parents)):
        raise OptionError(f"{file}: a preview must be a .png file outside of any packed dataset")


def _tile(dataset: MapStyle, index: int, side: int) -> tuple[Pixels, str]:
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


def _sample(dataset: MapStyle, index: int) -> tuple[object, object]:
    sample = dataset[index]
    if isinstance(sample, Mapping) and "image" in sample:
        return sample["image"], sample
    if isinstance(sample, Sequence) and len(sample) > 1:
        return sample[0], sample[1]
    raise OptionError(
        f"a sample must be (image, target) or a dict with an 'image', got {type(sample).__name__} at {index}"
    )


def _first_readable(dataset: MapStyle) -> tuple[object, object]:
    """Return the image and the target of the first readable sample; (None, None) if there is none."""
    for index in range(len(dataset)):
        with contextlib.suppress(DamageError, DecodeError):
            return _sample(dataset, index)
    return None, None


def _has_objects(target: object) -> TypeGuard[Mapping[str, Sequence[object]]]:
    return isinstance(target, Mapping) and ("boxes" in target or "mask" in target)


def _pixels_of(image: object) -> Pixels:
    """Return an image of any type as an array (height, width, channels)."""
    tensor = PILToTensor()(image)
    assert isinstance(tensor, torch.Tensor)
    pixels: Pixels = tensor.permute(1, 2, 0).numpy()
    return pixels


def _to_levels(image: object) -> Pixels:
    """Return an image of any type as RGB, uint8, stretched if `_legend_of` says so."""
    pixels = _pixels_of(image)
    pixels = pixels[:, :, : 3 if pixels.shape[2] >= 3 else 1]
    if pixels.dtype != np.uint8:
        levels = pixels.astype(np.float32)
        low, high = np.zeros(1), np.ones(1)
        if not _is_plain(pixels):
            low, high = np.nanpercentile(levels, _PERCENTILES, axis=(0, 1))
        levels = np.nan_to_num((levels - low) * (255 / np.maximum(high - low, 1e-9)))
        pixels = levels.clip(0, 255).astype(np.uint8)
    return pixels if pixels.shape[2] == 3 else pixels.repeat(3, axis=2)


def _is_plain(pixels: Pixels) -> bool:
    """Return True if pixels are shown as they are: of 8 bits, or floats from 0 to 1."""
    is_in_range = pixels.dtype.kind == "f" and bool(pixels.min() >= 0 and pixels.max() <= 1)
    return pixels.dtype == np.uint8 or is_in_range


def _legend_of(image: object) -> str:
    """Return how images of this type are shown; "" if as they are."""
    if image is None:
        return ""
    pixels = _pixels_of(image)
    channels, parts = pixels.shape[2], []
    if channels > 3 or channels == 2:
        shown = "channels 1, 2 and 3 as red, green and blue" if channels > 3 else "channel 1"
        parts.append(f"{shown} of {channels}")
    if not _is_plain(pixels[:, :, : 3 if channels >= 3 else 1]):
        low, high = _PERCENTILES
        parts.append(f"each channel stretched from percentile {low} to {high} of each image")
    return f"{pixels.dtype}: {'; '.join(parts)}" if parts else ""


def _class_name(classes: Sequence[object], target: object) -> str:
    label = target.get("label", -1) if isinstance(target, Mapping) else target
    if not isinstance(label, int) or not 0 <= label < len(classes):
        return ""
    return str(classes[label])


def draw_objects(
    picture: Pixels, target: Mapping[str, object], size: tuple[int, int], names: Sequence[object]
) -> None:
    """Draw the objects and the mask of a target like those of PackedDataset onto a picture, in place.

    `size` is the (height, width) of the image to which the coordinates belong; `names` lists class names.
    """
    objects = SampleParts(target, size).annotations.resized(*picture.shape[:2])
    labels = torch.as_tensor(objects.labels).tolist()
    if objects.mask is not None:
        palette = np.array([colour_of(label) for label in range(256)], np.uint8)
        _blend(picture, objects.mask > 0, palette[objects.mask.astype(np.int64) % len(palette)])
    polygons = objects.polygons or []
    patches = drawn(polygons, objects.size)
    for rings, patch, label in zip(polygons, patches, labels, strict=False):
        colour, part = colour_of(label), patch.view(picture)
        _blend(part, patch.pixels > 0, np.broadcast_to(np.array(colour, np.uint8), part.shape))
        outlines = [_fixed(ring) for ring in rings if len(ring)]
        cv2.polylines(picture, outlines, True, colour, 1, cv2.LINE_AA, _FRACTION_BITS)
    for corners, label in zip(_rows(objects.corners), labels, strict=False):
        cv2.polylines(picture, [_fixed(corners)], True, colour_of(label), 1, cv2.LINE_AA, _FRACTION_BITS)
    boxes = objects.boxes
    if objects.corners is not None:
        boxes = np.concatenate((objects.corners.min(axis=1), objects.corners.max(axis=1)), axis=1)
    for box, label in zip(boxes.tolist(), labels, strict=True):
        left, top, right, bottom = (round(side) for side in box)
        if objects.corners is None:
            cv2.rectangle(picture, (left, top), (right - 1, bottom - 1), colour_of(label), 1)
        _draw_tag(picture, _class_name(names, label) or str(label), left, top, colour_of(label))
    for points, label in zip(_rows(objects.keypoints), labels, strict=False):
        for x, y, is_seen in points.tolist():
            if is_seen:
                cv2.circle(picture, (round(x), round(y)), 3, (255, 255, 255), -1, cv2.LINE_AA)
                cv2.circle(picture, (round(x), round(y)), 2, colour_of(label), -1, cv2.LINE_AA)


def colour_of(label: int) -> Colour:
    """Return the colour of a class."""
    red, green, blue = colorsys.hsv_to_rgb(label * _HUE_STEP % 1, 0.85, 0.95)
    return int(red * 255), int(green * 255), int(blue * 255)


def _write(picture: Pixels, text: str, left: int, baseline: int, colour: Colour) -> None:
    """Write one line of text; OpenCV's fonts have only ASCII."""
    printable = text.encode("ascii", "replace").decode()
    cv2.putText(picture, printable, (left, baseline), _FONT, _FONT_SCALE, colour, 1, cv2.LINE_AA)


def _draw_tag(picture: Pixels, name: str, left: int, top: int, colour: Colour) -> None:
    """Write a class name on its colour above the corner of a box, or inside where there is no room above."""
    name = name[:_MOST_CHARACTERS]
    (width, height), _ = cv2.getTextSize(name, _FONT, _FONT_SCALE, 1)
    left = max(0, min(left, picture.shape[1] - width - 4))
    top = max(0, top - height - 5 if top >= height + 5 else top)
    cv2.rectangle(picture, (left, top), (left + width + 3, top + height + 4), colour, -1)
    red, green, blue = colour
    # White on dark colours, black on light ones, by the luma of ITU-R BT.601.
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
    _write(picture, name, left + 2, top + height + 2, (0, 0, 0) if is_light else (255, 255, 255))


def _blend(picture: Pixels, where: NDArray[np.bool_], colours: Pixels) -> None:
    mixed = picture[where] * (1 - _OPACITY) + colours[where] * _OPACITY
    picture[where] = mixed.astype(np.uint8)


def _fixed(points: NDArray[np.floating]) -> NDArray[np.int32]:
    # The origin of OpenCV is the centre of the first pixel, not its corner.
    fixed: NDArray[np.int32] = np.rint((points - 0.5) * (1 << _FRACTION_BITS)).astype(np.int32)
    return fixed


def _rows(array: NDArray[np.float32] | None) -> Sequence[NDArray[np.float32]]:
    return () if array is None else list(array)
