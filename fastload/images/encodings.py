"""Encodings of stored images.

    keep     the file byte for byte, whatever its format
    tiled    a JPEG with the same pixels, losslessly cut into tiles; other files like `keep`
    jpeg     JPEG in tiles: small
    yuv420   NV12 planes, 1.5 bytes a pixel: fast
    blosc    pixels of any dtype, compressed without loss in tiles
    raw      pixels of any dtype, for RGB 3 bytes a pixel: fastest

Equal sources and parameters give equal bytes, so packed datasets can be compared by their checksums.
Decoding a photo takes 80 µs from NV12, 500 to 900 µs from JPEG.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.contracts import Box
from fastload.errors import DecodeError, OptionError
from fastload.images.arrays import Pixels, StoredBytes, with_last_axis
from fastload.images.blosc import compress, decompress, require_blosc
from fastload.images.decode import decode, encode
from fastload.images.header import validate_file
from fastload.images.jpeg import TileIndex, choose_interval, index_tiles, with_orientation
from fastload.images.jpegtran import require_jpegtran, tile_losslessly
from fastload.images.numpy_files import as_npy
from fastload.images.nv12 import nv12_size, nv12_to_rgb, rgb_to_nv12
from fastload.images.opencv import cv2
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.region import decode_region
from fastload.images.resize import SizeLimit
from fastload.images.source_pixels import ImageSource, load_pixels, require_pixels, require_type
from fastload.images.unchanged import decode_region_as

Shape: TypeAlias = "tuple[int, int, int]"

_NO_GRID = (0, 0, 0, 0)

_CHANNELS_OF_PNG = (1, 3, 4)


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
    is_raw: ClassVar[bool] = False  # True if records are pixels that need no decoding
    takes_any_type: ClassVar[bool] = False  # False: pixels are RGB of 8 bits
    pixel_type: PixelType = RGB

    def parameters(self) -> dict[str, int | str]:
        """Return the parameters as the manifest lists them."""
        return {}

    def require_tools(self) -> None:
        """Raise ToolMissingError if a program that it calls is not installed."""
        return

    @abstractmethod
    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """Encode one image, shrunk to the limit; `workdir` is an existing folder for temporary files.

        Raises DecodeError for an unreadable file or an image of another type, SourceError for an array that
        is no image, and OptionError if the encoding cannot store the image or apply the limit.
        """

    def decode(self, data: StoredBytes, shape: Shape) -> Pixels:
        """Decode a stored image to contiguous pixels (height, width, channels); for `raw`, a view of it.

        Raises DecodeError if the record is not a readable image, of this shape; a shape of zeros says so.
        """
        return np.ascontiguousarray(self.decode_box(data, shape, Box(0, 0, *shape[:2])))

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> Pixels:
        """Decode a region of a stored image, bit-equal to `decode` and cropping; possibly a view.

        `index` holds the tiles of a JPEG that has some. `reduction` is the factor by which decoding shrinks
        each side of a JPEG; other formats ignore it. Raises DecodeError like `decode`.
        """
        _require_image(shape)
        if self.pixel_type == RGB:
            return decode_region(data, shape[:2], index, box, reduction)
        return decode_region_as(data, shape[:2], box, self.pixel_type)

    def pixel_bytes(self, shape: Shape) -> int | None:
        """Return the size of a stored image of this shape; None if images of one shape differ in size."""
        return None


@dataclass(frozen=True, slots=True)
class Keep(Encoding):
    """Store files byte for byte, and pixels losslessly as PNG, or as .npy if PNG cannot hold them."""

    name: ClassVar[str] = "keep"
    is_lossless: ClassVar[bool] = True
    takes_any_type: ClassVar[bool] = True

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; no limit is supported."""
        require_no_limit(self.name, limit)
        if isinstance(source, bytes):
            header = validate_file(source).header
            require_type(header.pixel_type, self.pixel_type)
            return StoredImage(source, header.shape)
        return _stored_as_file(source, self.pixel_type)


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
            return _stored_as_file(source, self.pixel_type)
        header = validate_file(source).header
        require_type(header.pixel_type, self.pixel_type)
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
        rgb, is_grey, orientation = load_pixels(source, limit, self.pixel_type)
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
        rgb, _, _ = load_pixels(source, limit, self.pixel_type)
        return StoredImage(rgb_to_nv12(rgb), (rgb.shape[0], rgb.shape[1], 3))

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> Pixels:
        _require_image(shape)
        return nv12_to_rgb(data, shape[:2], box)

    def pixel_bytes(self, shape: Shape) -> int | None:
        return nv12_size(shape[0], shape[1])


@dataclass(frozen=True, slots=True)
class Blosc(Encoding):
    """Store pixels compressed without loss in tiles."""

    name: ClassVar[str] = "blosc"
    holds_files: ClassVar[bool] = False
    takes_any_type: ClassVar[bool] = True

    def require_tools(self) -> None:
        require_blosc()

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; an EXIF orientation is neither applied nor kept."""
        image, _, _ = load_pixels(source, limit, self.pixel_type)
        return StoredImage(compress(image), image.shape)

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> Pixels:
        _require_image(shape)
        return decompress(data, shape, self.pixel_type, box)


@dataclass(frozen=True, slots=True)
class Raw(Encoding):
    """Store pixels as they are."""

    name: ClassVar[str] = "raw"
    holds_files: ClassVar[bool] = False
    is_raw: ClassVar[bool] = True
    takes_any_type: ClassVar[bool] = True

    def encode(self, source: ImageSource, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; an EXIF orientation is neither applied nor kept."""
        image, _, _ = load_pixels(source, limit, self.pixel_type)
        little = image.astype(image.dtype.newbyteorder("<"), copy=False)
        return StoredImage(little.reshape(-1).view(np.uint8), image.shape)

    def decode_box(
        self, data: StoredBytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> Pixels:
        _require_image(shape)
        if len(data) != self.pixel_bytes(shape):
            raise DecodeError(
                f"raw pixels of shape {shape} must have {self.pixel_bytes(shape)} bytes, got {len(data)}: "
                "the record's shape or its data is damaged"
            )
        pixels = box.of(np.frombuffer(data, self.pixel_type.stored_dtype).reshape(shape))
        # LMDB aligns its records to two bytes, which torch's and OpenCV's kernels of float32 need not take.
        return pixels if pixels.flags.aligned else pixels.copy()

    def pixel_bytes(self, shape: Shape) -> int | None:
        return shape[0] * shape[1] * shape[2] * self.pixel_type.numpy_dtype.itemsize


ENCODINGS: dict[str, type[Encoding]] = {each.name: each for each in (Keep, Tiled, Jpeg, Yuv420, Blosc, Raw)}
"""The encodings by their names."""


def encoding_named(name: str | None, quality: int | None = None, pixel_type: PixelType = RGB) -> Encoding:
    """Return an encoding for a type of pixels, `jpeg` of a quality if one is given.

    Raises OptionError if the name is unknown, or the encoding has other pixels.
    """
    if name not in ENCODINGS:
        raise OptionError(f"an encoding must be one of {', '.join(ENCODINGS)}, got {name!r}")
    kind = ENCODINGS[name]
    if pixel_type != RGB and not kind.takes_any_type:
        others = " or ".join(each for each, encoding in ENCODINGS.items() if encoding.takes_any_type)
        raise OptionError(
            f"the {name} encoding stores {RGB}, got images of {pixel_type}: choose {others}, or convert them "
            f"with --convert {RGB.dtype}"
        )
    return Jpeg(quality=quality) if name == Jpeg.name and quality is not None else kind(pixel_type)


def require_no_limit(name: str, limit: SizeLimit | None) -> None:
    """Raise OptionError for a limit if the encoding of this name stores the pixels of files as they are."""
    if limit is not None and ENCODINGS[name].is_lossless:
        others = ", ".join(each for each, encoding in ENCODINGS.items() if not encoding.is_lossless)
        raise OptionError(
            f"the {name} encoding stores every pixel as it is and cannot resize images: choose another one "
            f"({others}), or leave out the size"
        )


def as_file(image: Pixels, pixel_type: PixelType) -> bytes:
    """Return pixels (height, width, channels) as a file of their type: a PNG, or .npy if it has no PNG."""
    channels = image.shape[2]
    # A PNG of 8 bits is RGB, whatever its channels.
    if channels in _CHANNELS_OF_PNG and (pixel_type == RGB or image.dtype == np.uint16):
        return encode(image[:, :, 0] if channels == 1 else image, ".png")
    return as_npy(image)


def _stored_as_file(source: Pixels, pixel_type: PixelType) -> StoredImage:
    image = with_last_axis(require_pixels(source))
    found = PixelType.of(image)
    require_type(RGB if found == RGB._replace(channels=1) else found, pixel_type)
    return StoredImage(as_file(image, pixel_type), image.shape)


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
