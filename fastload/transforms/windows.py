"""Padding, and windows that may extend beyond the edges of one image or of each image of a batch."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray

from fastload.contracts import Gathered
from fastload.errors import OptionError
from fastload.images.arrays import DType, Pixels, with_last_axis
from fastload.images.opencv import cv2
from fastload.system.buffers import reusable_array
from fastload.transforms.options import FillLevels, require, to_colour, to_levels

# torchvision's padding modes and OpenCV's; `reflect` does not repeat the last row, `symmetric` does.
BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}

_Sides = tuple[int, int]  # pixels before and after

_OPENCV_DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float32", "float64")

# Masks of all possible window positions are cached up to this size; for 32x32 pixels padded by 4 they take a
# quarter of a megabyte.
_MOST_MASK_BYTES = 4 << 20

_CHANNELS_OF_COLOURS = 4  # of OpenCV's borders

_WORD_BYTES = 8


def taken(gathered: Gathered, out: Pixels | None = None) -> Pixels:
    """Return a copy of the batch's images; see `memory_for`."""
    out = memory_for((len(gathered.rows), *gathered.images.shape[1:]), gathered.images.dtype, out)
    return np.take(gathered.images, gathered.rows, axis=0, out=out, mode="clip")


def memory_for(shape: tuple[int, ...], dtype: DType, out: Pixels | None) -> Pixels:
    """Return `out` if it has this shape and dtype, otherwise an uninitialised array that has."""
    if out is not None and out.shape == shape and out.dtype == dtype:
        return out
    return reusable_array(shape, dtype)


def pad(image: Pixels, rows: _Sides, columns: _Sides, fill: FillLevels = 0, mode: str = "constant") -> Pixels:
    """Pad an image with rows above and below, and columns to the left and right."""
    if not (any(rows) or any(columns)):
        return image
    lacks = int(mode == "reflect")
    is_enough = max(rows) <= image.shape[0] - lacks and max(columns) <= image.shape[1] - lacks
    if mode in ("reflect", "symmetric") and not is_enough:
        raise OptionError(
            f"padding_mode {mode!r} must have enough pixels to mirror, got {max(*rows, *columns)} to add to "
            f"an image of {image.shape[0]}x{image.shape[1]}"
        )
    if image.dtype.name not in _OPENCV_DTYPES or image.shape[2] > _CHANNELS_OF_COLOURS:
        return _padded_by_numpy(image, rows, columns, fill, mode)
    colour = _levels(fill, image).tolist()
    return with_last_axis(cv2.copyMakeBorder(image, *rows, *columns, BORDERS[mode], value=colour))


def crop_padded(
    image: Pixels, top: int, left: int, height: int, width: int, fill: FillLevels = 0, mode: str = "constant"
) -> Pixels:
    """Crop a box, padded where it extends beyond the image."""
    rows = max(0, -top), max(0, top + height - image.shape[0])
    columns = max(0, -left), max(0, left + width - image.shape[1])
    if mode != "constant":
        image = pad(image, rows, columns, fill, mode)
        top, left = top + rows[0], left + columns[0]
        return image[top : top + height, left : left + width]
    # Crop before padding, so that only pixels of the result are copied.
    inside = image[max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    if inside.size == 0:
        return np.full((height, width, image.shape[2]), _levels(fill, image)[: image.shape[2]])
    return pad(inside, rows, columns, fill)


def crop_on_device(
    images: torch.Tensor, boxes: NDArray[np.int64], fill: FillLevels, mode: str
) -> torch.Tensor:
    """Crop boxes (images, 4) from a batch (images, channels, height, width), as `crop_padded` does.

    Raises OptionError if they differ in size.
    """
    require((boxes[:, 2:] == boxes[0, 2:]).all(), "crops on a device must have one size", boxes[:, 2:])
    device, channels = images.device, images.shape[1]
    height, width = boxes[0, 2:].tolist()
    rows = _source_positions(boxes[:, :1] + np.arange(height), images.shape[2], mode)
    columns = _source_positions(boxes[:, 1:2] + np.arange(width), images.shape[3], mode)
    numbers = torch.arange(len(images), device=device)[:, None, None]
    row = torch.from_numpy(rows.clip(min=0)).to(device)[:, :, None]
    column = torch.from_numpy(columns.clip(min=0)).to(device)[:, None]
    cropped = images.permute(0, 2, 3, 1)[numbers, row, column]
    is_outside = (rows < 0)[:, :, None] | (columns < 0)[:, None]
    if is_outside.any():
        colour = torch.tensor(to_colour(fill, channels)[:channels], device=device).to(images.dtype)
        cropped = torch.where(torch.from_numpy(is_outside).to(device)[..., None], colour, cropped)
    return cropped.permute(0, 3, 1, 2)


def _source_positions(wanted: NDArray[np.int64], side: int, mode: str) -> NDArray[np.int64]:
    """Return the source position along a side for each wanted one, which may be outside; -1 for padding."""
    if mode == "constant":
        return np.where((wanted < 0) | (wanted >= side), -1, wanted)
    before, after = max(0, -int(wanted.min())), max(0, int(wanted.max()) - side + 1)
    # torchvision's names are NumPy's.
    return np.pad(np.arange(side), (before, after), mode)[wanted + before]  # type: ignore[call-overload, no-any-return]


def windows_into(gathered: Gathered, offsets: NDArray[np.int64], out: Pixels) -> None:
    """Copy a window of each image to `out` (images, window height, window width, channels), contiguous.

    `offsets` are top and left of each window, (images, 2); all windows lie within the images.
    """
    rows = offsets[:, :1] + np.arange(out.shape[1])
    _copy_runs(gathered, rows * gathered.images.shape[2] + offsets[:, 1:], out)


def windows_over_black_into(gathered: Gathered, offsets: NDArray[np.int64], out: Pixels) -> bool:
    """Copy windows as `windows_into` does, with black beyond the edges of the images.

    Pixels are copied from whatever memory lies there, as if there were no edges; then everything outside the
    image is masked out. A window as wide as the images is a single run of pixels. This takes half the time of
    padding all images first. Returns False, with nothing done, if there are too many possible positions or if
    windows are larger than the images.
    """
    count, (height, width, channels) = len(out), gathered.images.shape[1:]
    first, last = offsets.min(axis=0), offsets.max(axis=0)
    places = last - first + 1
    size_bytes = out[0].nbytes
    fits = out.shape[1] <= height and out.shape[2] <= width
    if not fits or size_bytes % _WORD_BYTES or int(places.prod()) * size_bytes > _MOST_MASK_BYTES:
        return False
    if out.shape[2] == width:
        begins = offsets[:, :1] * width + offsets[:, 1:]
    else:
        rows = np.clip(offsets[:, :1] + np.arange(out.shape[1]), 0, height - 1)
        begins = rows * width + offsets[:, 1:]
    misplaced = _copy_runs(gathered, begins, out)
    pixel_bytes = channels * out.itemsize
    masks = _masks((height, width), out.shape[1:3], tuple(first.tolist()), tuple(last.tolist()), pixel_bytes)
    chosen = reusable_array((count, size_bytes))
    np.take(masks, (offsets - first) @ [places[1], 1], axis=0, out=chosen, mode="clip")
    words = out.reshape(count, -1).view(np.uint8).view(np.uint64)
    np.bitwise_and(words, chosen.view(np.uint64), out=words)
    for image in misplaced.tolist():
        stored = gathered.images[gathered.rows[image]]
        out[image] = crop_padded(stored, *offsets[image].tolist(), *out.shape[1:3])
    return True


def _copy_runs(gathered: Gathered, begins: NDArray[np.int64], out: Pixels) -> NDArray[np.int64]:
    """Copy runs of pixels to `out`, one after the other, and return the images with runs that were moved.

    `begins`, (images, runs of each), are in pixels from the first pixel of each image. A run may begin before
    its image or end after it, in the pixels of its neighbours; one that leaves the array is moved
    inside.
    """
    total, height, width, channels = gathered.images.shape
    pixel_bytes = channels * out.itemsize
    length = out[0].size // channels // begins.shape[1]
    last = total * height * width - length
    # Every possible run is one element of this array, so each is copied in one go. (torch's index_select
    # is faster in one thread; in several, when the cores are busy, it takes ten times as long.)
    run = np.dtype((np.void, length * pixel_bytes))
    runs: NDArray[np.void] = np.ndarray((last + 1,), run, gathered.images.data, strides=(pixel_bytes,))
    begins = (gathered.rows * (height * width))[:, None] + begins
    within = np.clip(begins, 0, last)
    out.reshape(-1).view(run)[:] = runs[within.reshape(-1)]
    return np.flatnonzero((within[:, [0, -1]] != begins[:, [0, -1]]).any(axis=1))


@functools.lru_cache(maxsize=8)
def _masks(
    size: tuple[int, int],
    window: tuple[int, int],
    first: tuple[int, int],
    last: tuple[int, int],
    pixel_bytes: int,
) -> NDArray[np.uint8]:
    """Return 255 for bytes inside the image, else 0, at every position of a window: (positions, bytes)."""
    is_inside = []
    for side in (0, 1):
        places = np.arange(first[side], last[side] + 1)[:, None] + np.arange(window[side])
        is_inside.append((places >= 0) & (places < size[side]))
    rows, columns = is_inside
    both = rows[:, None, :, None] & np.repeat(columns, pixel_bytes, axis=1)[None, :, None, :]
    return (both * np.uint8(255)).reshape(len(rows) * len(columns), -1)


def _padded_by_numpy(image: Pixels, rows: _Sides, columns: _Sides, fill: FillLevels, mode: str) -> Pixels:
    """Pad pixels of a dtype or of more channels than OpenCV has: it would turn int64 into int32."""
    if mode != "constant":
        return np.pad(image, (rows, columns, (0, 0)), mode)  # type: ignore[call-overload, no-any-return]
    height, width, channels = image.shape
    padded = np.empty((sum(rows) + height, sum(columns) + width, channels), image.dtype)
    padded[:] = _levels(fill, image)[:channels]
    padded[rows[0] : rows[0] + height, columns[0] : columns[0] + width] = image
    return padded


def _levels(fill: FillLevels, image: Pixels) -> Pixels:
    """Return a colour as four levels or more of a dtype, integers rounded down as in torchvision."""
    return np.array(to_levels(fill, image.shape[2], image.dtype)).astype(image.dtype)
