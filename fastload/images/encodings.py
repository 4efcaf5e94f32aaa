"""How an image is stored: five encodings, each a small frozen dataclass of one protocol.

    keep     the file's own bytes, whatever its format
    tiled    a JPEG's own pixels, cut into tiles without loss; other files as `keep` does
    jpeg     JPEG cut into tiles: small
    yuv420   NV12 planes, 1.5 bytes a pixel: fast
    raw      RGB, 3 bytes a pixel: fastest

Equal sources and parameters give equal bytes: a packed dataset can be compared by its checksums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastload.errors import DecodeError, OptionError
from fastload.images.checking import check_file
from fastload.images.decode import decode, encode, is_reducible
from fastload.images.jpeg import TileIndex, choose_interval, index_tiles, with_orientation
from fastload.images.jpegtran import tile_losslessly
from fastload.images.opencv import cv2
from fastload.images.region import Box, cropped, decode_region
from fastload.images.resize import SizeLimit
from fastload.images.sources import Source, checked_pixels, load
from fastload.images.yuv import nv12_box_to_rgb, nv12_to_rgb, rgb_to_nv12

Bytes: TypeAlias = "bytes | NDArray[np.uint8]"  # stored bytes, or a flat view of mapped memory
Shape: TypeAlias = "tuple[int, int, int]"

_NO_GRID = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class StoredImage:
    """What an encoding makes of one image, ready to be written.

    Attributes:
        data: The stored bytes; an array is flat.
        shape: (height, width, channels) of what is stored, before any orientation is applied.
        grid: As in `TileIndex`; zeros where there are no tiles.
        tiles: The tiles' lengths as in `TileIndex`; empty where there are none.
    """

    data: Bytes
    shape: Shape
    grid: tuple[int, int, int, int] = _NO_GRID
    tiles: NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))


class Encoding(Protocol):
    """A way to store images. Instances are frozen, and equal where their parameters are."""

    @property
    def name(self) -> str:
        """What the manifest and the command line call it."""

    def parameters(self) -> dict[str, int | str]:
        """What `encoding_named` needs, besides the name, to make an equal one."""

    def encode(self, source: Source, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """Turns one image into what is stored.

        Args:
            source: An encoded file, or uint8 pixels: RGB (height, width, 3), grey (height, width).
            limit: How large the stored image may be; None for any size.
            workdir: An existing folder for temporary files, left as it was.

        Raises:
            DecodeError: The file is truncated, damaged or no image.
            OptionError: The encoding cannot store the image, or cannot obey the limit.
            SourceError: The pixels have another shape or type.
        """

    def decode(self, data: Bytes, shape: Shape) -> NDArray[np.uint8]:
        """Turns stored bytes back into pixels.

        Args:
            data: As stored.
            shape: As stored; zeros for a record that was kept though its file is no readable image.

        Returns:
            RGB, uint8, (height, width, 3); of `raw`, a view of the data.

        Raises:
            DecodeError: The record is no readable image.
        """

    def decode_box(
        self, data: Bytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        """Turns a part of what is stored back into pixels: to the bit those of `decode`.

        Args:
            data: As stored.
            shape: As stored.
            box: The part, within the image.
            index: The tiles of a JPEG; without them all of it is decoded.
            reduction: By how much a JPEG may be shrunk meanwhile, each side; others are not.

        Returns:
            RGB, uint8, (box.height, box.width, 3), or that reduced; it may be a view, of `raw` one of the
            data.

        Raises:
            DecodeError: The record is no readable image, or not the one that the shape describes.
        """


@dataclass(frozen=True, slots=True)
class _Parametrised:
    def parameters(self) -> dict[str, int | str]:
        """See `Encoding`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _FileEncoding(_Parametrised):
    """What encodings share whose records are image files."""

    def decode(self, data: Bytes, shape: Shape) -> NDArray[np.uint8]:
        """See `Encoding`."""
        _require_image(shape)
        return decode(data)

    def decode_box(
        self, data: Bytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        """See `Encoding`."""
        _require_image(shape)
        reduction = reduction if is_reducible(data) else 1
        if index is not None:
            return decode_region(data, shape[:2], index, box, reduction)
        return cropped(decode(data, reduction), shape[:2], box, reduction)


@dataclass(frozen=True, slots=True)
class Keep(_FileEncoding):
    """Stores files byte for byte, and pixels as PNG, which loses nothing."""

    name: ClassVar[str] = "keep"

    def encode(self, source: Source, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; no limit can be obeyed."""
        _refuse(limit, self.name)
        if isinstance(source, bytes):
            return StoredImage(source, check_file(source).header.shape)
        return _as_png(source)


@dataclass(frozen=True, slots=True)
class Tiled(_FileEncoding):
    """Stores JPEG files cut into tiles, every pixel as it was; any other file as `Keep` does.

    A JPEG of which no equal tiled file can be made is kept too. See `tile_losslessly` for what is
    dropped besides pixels.
    """

    name: ClassVar[str] = "tiled"

    def encode(self, source: Source, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; no limit can be obeyed.

        Raises:
            ToolMissingError: There is no jpegtran that makes tiles.
        """
        _refuse(limit, self.name)
        if not isinstance(source, bytes):
            return _as_png(source)
        header = check_file(source).header
        tiled = tile_losslessly(source, workdir) if header.format == "jpeg" else None
        if tiled is None:
            if header.format == "jpeg":
                decode(source)  # not tiled because odd, or because nobody can read it?
            return StoredImage(source, header.shape)
        return _indexed(tiled, header.shape)


# Name: (OpenCV's constant, width of an MCU in pixels).
_SUBSAMPLINGS = {
    "420": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, 16),
    "422": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422, 16),
    "444": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444, 8),
}


@dataclass(frozen=True, slots=True)
class Jpeg(_FileEncoding):
    """Encodes anew as JPEG cut into tiles; grey stays grey, the EXIF orientation is kept.

    Attributes:
        quality: 1 to 100, libjpeg's scale.
        subsampling: Of colour: `420` (half of each side), `422` (half of the width), `444`.

    Raises:
        OptionError: A parameter is none of these.
    """

    name: ClassVar[str] = "jpeg"
    quality: int = 90
    subsampling: str = "420"

    def __post_init__(self) -> None:
        if self.quality not in range(1, 101):
            raise OptionError(f"quality must be a whole number, 1 to 100, got {self.quality!r}")
        if self.subsampling not in _SUBSAMPLINGS:
            raise OptionError(
                f"subsampling must be one of {', '.join(_SUBSAMPLINGS)}, got {self.subsampling!r}"
            )

    def encode(self, source: Source, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`."""
        picture = load(source, limit)
        height, width = picture.rgb.shape[:2]
        factors, mcu_width = _SUBSAMPLINGS[self.subsampling]
        sampling = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factors]
        if picture.is_grey:
            mcu_width, sampling = 8, []
        # Not IMWRITE_JPEG_OPTIMIZE: codes made for the picture take 0.9 ms more, of 2.2 in all, and
        # the file is 5 % smaller.
        options = [
            *(cv2.IMWRITE_JPEG_QUALITY, self.quality),
            *(cv2.IMWRITE_JPEG_RST_INTERVAL, choose_interval(width, mcu_width)),
            *sampling,
        ]
        pixels = picture.rgb[:, :, 0].copy() if picture.is_grey else picture.rgb
        data = with_orientation(encode(pixels, ".jpg", options), picture.orientation)
        return _indexed(data, (height, width, 1 if picture.is_grey else 3))


@dataclass(frozen=True, slots=True)
class Yuv420(_Parametrised):
    """Stores NV12 planes: colour at half of each side, otherwise exact within rounding."""

    name: ClassVar[str] = "yuv420"

    def encode(self, source: Source, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; an EXIF orientation is neither applied nor kept."""
        rgb = load(source, limit).rgb
        return StoredImage(rgb_to_nv12(rgb), (rgb.shape[0], rgb.shape[1], 3))

    def decode(self, data: Bytes, shape: Shape) -> NDArray[np.uint8]:
        """See `Encoding`."""
        _require_image(shape)
        return nv12_to_rgb(data, shape[0], shape[1])

    def decode_box(
        self, data: Bytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        """See `Encoding`."""
        _require_image(shape)
        return nv12_box_to_rgb(data, shape[0], shape[1], *box)


@dataclass(frozen=True, slots=True)
class Raw(_Parametrised):
    """Stores RGB pixels."""

    name: ClassVar[str] = "raw"

    def encode(self, source: Source, limit: SizeLimit | None, workdir: Path) -> StoredImage:
        """See `Encoding`; an EXIF orientation is neither applied nor kept."""
        rgb = load(source, limit).rgb
        return StoredImage(rgb.reshape(-1), (rgb.shape[0], rgb.shape[1], 3))

    def decode(self, data: Bytes, shape: Shape) -> NDArray[np.uint8]:
        """See `Encoding`."""
        _require_image(shape)
        height, width, channels = shape
        if len(data) != height * width * channels:
            raise DecodeError(
                f"raw pixels of shape {shape} must have {height * width * channels} bytes, got "
                f"{len(data)}: the record's shape or its data is damaged"
            )
        return np.frombuffer(data, np.uint8).reshape(height, width, channels)

    def decode_box(
        self, data: Bytes, shape: Shape, box: Box, index: TileIndex | None = None, reduction: int = 1
    ) -> NDArray[np.uint8]:
        """See `Encoding`."""
        return cropped(self.decode(data, shape), shape[:2], box)


_ENCODINGS: dict[str, Callable[..., Encoding]] = {
    encoding.name: encoding for encoding in (Keep, Tiled, Jpeg, Yuv420, Raw)
}


def encoding_named(name: str, **parameters: int | str) -> Encoding:
    """Makes the encoding of this name: `encoding_named("jpeg", quality=95)`.

    Raises:
        OptionError: There is no such encoding, or it has no such parameter.
    """
    if name not in _ENCODINGS:
        raise OptionError(f"an encoding must be one of {', '.join(_ENCODINGS)}, got {name!r}")
    known = _ENCODINGS[name]().parameters()
    if unknown := parameters.keys() - known.keys():
        raise OptionError(
            f"the {name} encoding's parameters are {', '.join(known) or 'none'}, "
            f"got {', '.join(sorted(unknown))}"
        )
    return _ENCODINGS[name](**parameters)


def _as_png(source: NDArray[np.uint8]) -> StoredImage:
    pixels = checked_pixels(source)
    channels = 1 if pixels.ndim == 2 else 3
    return StoredImage(encode(pixels, ".png"), (pixels.shape[0], pixels.shape[1], channels))


def _indexed(data: bytes, shape: Shape) -> StoredImage:
    index = index_tiles(data)
    if index is None:
        return StoredImage(data, shape)
    return StoredImage(data, shape, index.grid, index.lengths)


def _refuse(limit: SizeLimit | None, name: str) -> None:
    if limit is not None:
        raise OptionError(
            f"the {name} encoding stores every pixel as it is and cannot obey {limit}: choose "
            "jpeg, yuv420 or raw, or drop the limit"
        )


def _require_image(shape: Shape) -> None:
    if not any(shape):
        raise DecodeError(
            "a record must be a readable image to be decoded, got one that was kept though "
            "unreadable: skip it, or pack again without it"
        )
