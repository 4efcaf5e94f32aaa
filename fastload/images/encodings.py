"""Encodings of stored images.

    keep     the file byte for byte, whatever its format
    tiled    a JPEG with the same pixels, losslessly cut into tiles; other files like `keep`
    jpeg     JPEG in tiles: small
    yuv420   NV12 planes, luma and a quarter of interleaved chroma pairs, 1.5 bytes a pixel: fast
    raw      RGB, 3 bytes a pixel: fastest

Equal sources and parameters give equal bytes, so packed datasets can be compared by their checksums.
Converting a photo from NV12 to RGB takes 80 µs, decoding a JPEG 500 to 900. Its colours are BT.601 in studio
range, the only range that OpenCV's conversion to RGB supports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError, OptionError, SourceError
from fastload.images.arrays import Size
from fastload.images.decode import decode, encode
from fastload.images.header import validate_file
from fastload.images.jpeg import TileIndex, choose_interval, index_tiles, with_orientation
from fastload.images.jpegtran import require_jpegtran, tile_losslessly
from fastload.images.opencv import cv2
from fastload.images.region import Box, decode_region
from fastload.images.resize import SizeLimit, resize

ImageSource: TypeAlias = "bytes | NDArray[np.uint8]"  # a file, or pixels: RGB (h, w, 3) or grey (h, w)
StoredBytes: TypeAlias = "bytes | NDArray[np.uint8]"  # as stored, or a flat view of mapped memory
Shape: TypeAlias = "tuple[int, int, int]"

_NO_GRID = (0, 0, 0, 0)

# ITU-R BT.601 from RGB in 0..255 to Y in 16..235, U and V in 16..240: the weights, then the offset.
_LUMA = np.array([[65.481, 128.553, 24.966, 16 * 255]]) / 255
_CHROMA = np.array([[-37.797, -74.203, 112.0, 128 * 255], [112.0, -93.786, -18.214, 128 * 255]]) / 255


@dataclass(frozen=True, slots=True, eq=False)
class StoredImage:
    """One encoded image, ready to be written; grid and tile lengths are those of `TileIndex`, or empty."""

    data: StoredBytes
    shape: Shape  # (height, width, channels), before any orientation is applied
    grid: tuple[int, int, int, int] = _NO_GRID
    tiles: NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Encoding(ABC):
    """Base class of encodings, of those whose records are image files; equal parameters make them equal."""

    name: ClassVar[str]  # in the manifest and on the command line
    holds_files: ClassVar[bool] = True  # False: records are pixels, without the orientation of their file
    file_format: ClassVar[str | None] = None  # of its files, as in `ImageHeader`; None if they have several
    has_tiles: ClassVar[bool] = False  # True if its JPEGs may have tiles
    is_lossless: ClassVar[bool] = False  # True if it stores every pixel of a file, in the file's format
    is_rgb: ClassVar[bool] = False  # True if records are pixels that need no decoding

    def parameters(self) -> dict[str, int | str]:
        """Return the parameters as the manifest lists them."""
        return {}

    def require_tools(self) -> None:
        """Raise ToolMissingError if a program that it calls is not installed."""
        return

    @abstractmethod
    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """Encode one image, shrunk to the limit; `workdir` is an existing folder for temporary files.

        Raises DecodeError for an unreadable file, SourceError for pixels of another shape or type, and
        OptionError if the encoding cannot store the image or apply the limit.
        """

    def decode(self, data: StoredBytes, shape: Shape) -> NDArray[np.uint8]:
        """Decode a stored image to RGB, uint8, (height, width, 3), contiguous; for `raw`, a view of the data.

        Raises DecodeError if the record is not a readable image, of this shape; a shape of zeros says so.
        """
        return np.ascontiguousarray(self.decode_box(data, shape, Box(0, 0, *shape[:2])))

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        """Decode a region of a stored image, bit-equal to `decode` and cropping; possibly a view.

        `index` holds the tiles of a JPEG that has some. `reduction` is the factor by which decoding shrinks
        each side of a JPEG; other formats ignore it. Raises DecodeError like `decode`.
        """
        _require_image(shape)
        return decode_region(data, shape[:2], index, box, reduction)

    def pixel_bytes(self, shape: Shape) -> int | None:
        """Return the size of a stored image of this shape; None if images of one shape differ in size."""
        return None


@dataclass(frozen=True, slots=True)
class Keep(Encoding):
    """Store files byte for byte, and pixels losslessly as PNG."""

    name: ClassVar[str] = "keep"
    is_lossless: ClassVar[bool] = True

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; no limit is supported."""
        require_no_limit(self.name, limit)
        if isinstance(source, bytes):
            return StoredImage(source, validate_file(source).header.shape)
        return _as_png(source)


@dataclass(frozen=True, slots=True)
class Tiled(Encoding):
    """Store JPEG files losslessly in tiles, any other file like `Keep`.

    A JPEG that cannot be tiled without changing pixels is stored like any other file, too. Tiling drops
    metadata; see `tile_losslessly`.
    """

    name: ClassVar[str] = "tiled"
    has_tiles: ClassVar[bool] = True
    is_lossless: ClassVar[bool] = True

    def require_tools(self) -> None:
        require_jpegtran()

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; no limit is supported, and jpegtran is required (ToolMissingError)."""
        require_no_limit(self.name, limit)
        if not isinstance(source, bytes):
            return _as_png(source)
        header = validate_file(source).header
        if header.format == "jpeg":
            tiled = tile_losslessly(source, workdir)
            if tiled is not None:
                return _with_tile_index(tiled, header.shape)
            decode(source)  # raises if it was not tiled because nothing can decode it
        return StoredImage(source, header.shape)


@dataclass(frozen=True, slots=True)
class Jpeg(Encoding):
    """Encode as JPEG in tiles; grey stays grey, and the EXIF orientation is kept."""

    name: ClassVar[str] = "jpeg"
    file_format: ClassVar[str | None] = "jpeg"
    has_tiles: ClassVar[bool] = True
    quality: int = 90  # 1 to 100, libjpeg's scale

    def parameters(self) -> dict[str, int | str]:
        return {"quality": self.quality, "subsampling": "420"}

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        rgb, is_grey, orientation = _load_pixels(source, limit)
        height, width = rgb.shape[:2]
        # Not IMWRITE_JPEG_OPTIMIZE: Huffman tables made for each image take 0.9 of 2.2 ms, and make files
        # only 5 % smaller.
        options = [
            *(cv2.IMWRITE_JPEG_QUALITY, self.quality),
            *(cv2.IMWRITE_JPEG_RST_INTERVAL, choose_interval(width, 8 if is_grey else 16)),
        ]
        if not is_grey:
            options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]
        pixels = rgb[:, :, 0].copy() if is_grey else rgb
        data = with_orientation(encode(pixels, ".jpg", options), orientation)
        return _with_tile_index(data, (height, width, 1 if is_grey else 3))


@dataclass(frozen=True, slots=True)
class Yuv420(Encoding):
    """Store NV12 planes: colour at half the resolution of each side, otherwise exact up to rounding."""

    name: ClassVar[str] = "yuv420"
    holds_files: ClassVar[bool] = False

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; an EXIF orientation is neither applied nor kept."""
        rgb, _, _ = _load_pixels(source, limit)
        return StoredImage(rgb_to_nv12(rgb), (rgb.shape[0], rgb.shape[1], 3))

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        _require_image(shape)
        return nv12_to_rgb(data, shape[:2], box)

    def pixel_bytes(self, shape: Shape) -> int | None:
        return nv12_size(shape[0], shape[1])


@dataclass(frozen=True, slots=True)
class Raw(Encoding):
    """Store RGB pixels."""

    name: ClassVar[str] = "raw"
    holds_files: ClassVar[bool] = False
    is_rgb: ClassVar[bool] = True

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; an EXIF orientation is neither applied nor kept."""
        rgb, _, _ = _load_pixels(source, limit)
        return StoredImage(rgb.reshape(-1), (rgb.shape[0], rgb.shape[1], 3))

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        _require_image(shape)
        if len(data) != self.pixel_bytes(shape):
            raise DecodeError(
                f"raw pixels of shape {shape} must have {self.pixel_bytes(shape)} bytes, got {len(data)}: "
                "the record's shape or its data is damaged"
            )
        return box.of(np.frombuffer(data, np.uint8).reshape(shape))

    def pixel_bytes(self, shape: Shape) -> int | None:
        return shape[0] * shape[1] * shape[2]


ENCODINGS: dict[str, type[Encoding]] = {each.name: each for each in (Keep, Tiled, Jpeg, Yuv420, Raw)}
"""The encodings by their names."""


def encoding_named(name: str, quality: int = 90) -> Encoding:
    """Return an encoding, `jpeg` of a quality; raise OptionError if the name is unknown."""
    if name not in ENCODINGS:
        raise OptionError(f"an encoding must be one of {', '.join(ENCODINGS)}, got {name!r}")
    return Jpeg(quality) if name == Jpeg.name else ENCODINGS[name]()


def require_no_limit(name: str, limit: SizeLimit | None) -> None:
    """Raise OptionError for a limit if the encoding of this name stores the pixels of files as they are."""
    if limit is not None and ENCODINGS[name].is_lossless:
        others = ", ".join(each for each, encoding in ENCODINGS.items() if not encoding.is_lossless)
        raise OptionError(
            f"the {name} encoding stores every pixel as it is and cannot resize images: choose another one "
            f"({others}), or leave out the size"
        )


def _load_pixels(source: ImageSource, limit: SizeLimit | None) -> tuple[NDArray[np.uint8], bool, int]:
    """Validate and decode a file, or convert an array, and shrink it to the limit.

    Returns RGB pixels, True if the source is grey, and its EXIF orientation, which is not applied.
    """
    if isinstance(source, bytes):
        parsed = validate_file(source)
        rgb = decode(source) if parsed.rgb is None else parsed.rgb
        is_grey, orientation = parsed.header.channels <= 2, parsed.header.orientation
    else:
        rgb, is_grey, orientation = _require_pixels(source), source.ndim == 2, 1
        if is_grey:
            rgb = np.repeat(rgb[:, :, None], 3, axis=2)
    target = limit.target(*rgb.shape[:2]) if limit is not None else None
    return rgb if target is None else resize(rgb, *target), is_grey, orientation


def _require_pixels(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pixels as a contiguous array; raise SourceError for another shape or type, or no pixels."""
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not is_image or pixels.dtype != np.uint8 or pixels.size == 0:
        raise SourceError(
            "pixels must be uint8, RGB (height, width, 3) or grey (height, width), and not empty, "
            f"got {pixels.dtype} {pixels.shape}: convert them before packing"
        )
    return np.ascontiguousarray(pixels)


def _as_png(source: NDArray[np.uint8]) -> StoredImage:
    pixels = _require_pixels(source)
    channels = 1 if pixels.ndim == 2 else 3
    return StoredImage(encode(pixels, ".png"), (pixels.shape[0], pixels.shape[1], channels))


def _with_tile_index(data: bytes, shape: Shape) -> StoredImage:
    index = index_tiles(data)
    if index is None:
        return StoredImage(data, shape)
    return StoredImage(data, shape, index.grid, index.lengths)


def _require_image(shape: Shape) -> None:
    if not any(shape):
        raise DecodeError(
            "a record must be a readable image to be decoded, got one that was packed although it is "
            "unreadable: skip it, or pack again without it"
        )


def nv12_size(height: int, width: int) -> int:
    """Return the number of bytes of an image of this size; odd sides are padded to the next even ones."""
    padded_height, padded_width = _padded(height, width)
    return padded_height * padded_width * 3 // 2


def rgb_to_nv12(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert an RGB image, (height, width, 3), to flat planes; an odd last row or column is repeated.

    Chroma is averaged over four pixels. OpenCV's own conversion takes it from one of the four: on photos, the
    squared error after the conversion back is twice as large (20.5 against 10.7).
    """
    height, width = rgb.shape[:2]
    padded_height, padded_width = _padded(height, width)
    if (height, width) != (padded_height, padded_width):
        bottom, right = padded_height - height, padded_width - width
        rgb = np.asarray(cv2.copyMakeBorder(rgb, 0, bottom, 0, right, cv2.BORDER_REPLICATE))
    quarter = cv2.resize(rgb, (padded_width // 2, padded_height // 2), interpolation=cv2.INTER_AREA)
    luma, chroma = cv2.transform(rgb, _LUMA), cv2.transform(quarter, _CHROMA)
    return np.asarray(np.concatenate((luma.reshape(-1), chroma.reshape(-1))))


def nv12_to_rgb(data: StoredBytes, size: Size, box: Box) -> NDArray[np.uint8]:
    """Convert the planes of a box to RGB, (height, width, 3), bit-equal to converting all; perhaps a view.

    `size` is the image's before padding.
    """
    height, width = size
    if len(data) != nv12_size(height, width):
        raise DecodeError(
            f"NV12 planes of {height}x{width} pixels must have {nv12_size(height, width)} bytes, "
            f"got {len(data)}: the record's shape or its data is damaged"
        )
    padded_height, padded_width = _padded(height, width)
    planes = np.frombuffer(data, np.uint8)
    split = padded_height * padded_width
    luma = planes[:split].reshape(padded_height, padded_width)
    chroma = planes[split:].reshape(padded_height // 2, padded_width // 2, 2)
    # Four pixels share a pair of chroma values, so the region is extended to whole pairs.
    first_row, first_column = box.top // 2, box.left // 2
    end_row, end_column = (box.top + box.height + 1) // 2, (box.left + box.width + 1) // 2
    rgb = cv2.cvtColorTwoPlane(
        luma[2 * first_row : 2 * end_row, 2 * first_column : 2 * end_column],
        chroma[first_row:end_row, first_column:end_column],
        cv2.COLOR_YUV2RGB_NV12,
    )
    top, left = box.top % 2, box.left % 2
    return np.asarray(rgb[top : top + box.height, left : left + box.width])


def _padded(height: int, width: int) -> Size:
    return height + height % 2, width + width % 2
