"""Options of `pack`, checked before anything is read or written, and the choice of an encoding for `auto`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fastload.contracts import RecordSource
from fastload.errors import DestinationError, FastloadError, OptionError
from fastload.images.encoding_names import DTYPES
from fastload.images.encodings import ENCODINGS, encoding_named, require_no_limit
from fastload.images.header import read_header
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.resize import SizeLimit
from fastload.shards.remote import is_url
from fastload.shards.schema import Field
from fastload.sources.protocol import evenly_spaced
from fastload.system.units import format_size

OnError = Literal["fail", "skip", "keep"]
ENCODE_NAMES = ("auto", *ENCODINGS)
FORMAT_NAMES = ("hdf5", "lmdb")

# Large enough that opening a shard costs little compared with reading it, small enough that an interruption
# or a damaged file loses little.
DEFAULT_SHARD_BYTES = 256_000_000
_MIN_SHARD_BYTES = 4_096

# The mean size of 64 records is within a tenth of the true one for photos whose sizes vary as much as
# ImageNet's (standard deviation about 0.7 of the mean); reading a file's header takes 0.1 ms.
SAMPLE_RECORDS = 64

# Without --space, raw pixels may take up to this many times the source's size. Small images gain most from
# raw pixels (no decoding, entire batches at once) and grow least: CIFAR's thumbnails to 1.4–4 times the size
# of their JPEG and PNG files, photographs to 5–12 times.
RAW_GROWTH = 4.0

# The size of a JPEG of quality 90 with 4:2:0 (measured on ImageNet photos: 62–75 KB at 470 × 390).
_JPEG_BYTES_PER_PIXEL = 0.4

# Up to 128 × 128, decoding an image takes less than 0.1 ms, and starting jpegtran for it 2 ms (measured).
_LEAST_TILED_PIXELS = 128 * 128


@dataclass(frozen=True, slots=True)
class PackOptions:
    """Checked options of `pack`; `limit` applies to the size of images."""

    format: str = "hdf5"
    encode: str = "auto"
    quality: int | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    on_error: OnError = "fail"
    limit: SizeLimit | None = None
    space_bytes: int | None = None
    convert: str | None = None

    def __post_init__(self) -> None:
        allowed = {"format": FORMAT_NAMES, "encode": ENCODE_NAMES, "on_error": get_args(OnError)}
        for name, choices in allowed.items():
            if (got := getattr(self, name)) not in choices:
                raise OptionError(f"{name} must be one of {', '.join(choices)}, got {got!r}")
        if self.convert not in (None, *DTYPES):
            raise OptionError(f"convert must be one of {', '.join(DTYPES)}, got {self.convert!r}")
        if self.quality is not None and self.quality not in range(1, 101):
            raise OptionError(f"quality must be 1 to 100, got {self.quality!r}")
        if self.shard_bytes < _MIN_SHARD_BYTES:
            raise OptionError(f"shard_size must be at least {_MIN_SHARD_BYTES} bytes, got {self.shard_bytes}")
        if self.encode in ENCODINGS:
            require_no_limit(self.encode, self.limit)


def limit_of(
    max_side: int | None, shorter_side: int | None, size: tuple[int, int] | int | None
) -> SizeLimit | None:
    """Return the size limit that the options set, or None; raise OptionError for an invalid one."""
    if max_side is None and shorter_side is None and size is None:
        return None
    square = (size, size) if isinstance(size, int) else size
    return SizeLimit(max_side=max_side, shorter_side=shorter_side, size=square)


def check_fields(fields: Sequence[Field]) -> None:
    """Raise OptionError unless the `fields` given for a dataset are Field objects with different names."""
    if not all(isinstance(field, Field) for field in fields):
        raise OptionError(f"fields must be fastload.Field objects, got {fields!r}")
    names = [field.name for field in fields]
    if "image" in names or len(set(names)) < len(names):
        raise OptionError(f"fields must have different names other than 'image', got {names}")
    for field in fields:
        if field.encoding is not None:
            encoding_named(field.encoding, pixel_type=field.pixel_type)


def check_part(part: tuple[int, int] | None, on: str | None) -> None:
    """Raise OptionError unless a part is (number, count), numbered from 1, and packed on this machine."""
    if part is None:
        return
    if on is not None:
        raise OptionError("part is for packing without Ray, which packs all parts: leave out part or on")
    is_pair = isinstance(part, tuple) and len(part) == 2 and all(type(each) is int for each in part)
    if not is_pair or not 1 <= part[0] <= part[1]:
        raise OptionError(f"part must be (number, count), as in (3, 16), numbered from 1, got {part!r}")


def check_apart(source: object, dest: str | os.PathLike[str]) -> None:
    """Raise DestinationError if the source or the destination contains the other.

    Packing would read its own output, or replace the source.
    """
    if not isinstance(source, str | os.PathLike) or is_url(dest):
        return
    destination = os.path.abspath(os.path.expanduser(dest))
    origin, target = os.path.realpath(os.path.expanduser(source)), os.path.realpath(destination)
    if target == origin or (os.path.isdir(origin) and target.startswith(origin + os.sep)):
        raise DestinationError(
            f"{destination}: is inside the source {os.fspath(source)}: choose a destination outside of it"
        )
    if origin.startswith(target + os.sep):
        raise DestinationError(
            f"{destination}: contains the source {os.fspath(source)}: choose another destination"
        )


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Statistics of a source, estimated from sampled records.

    `mean_pixels` is the mean height × width of an image as it would be stored, `jpeg_share` is from 0 to 1.
    """

    records: int
    mean_source_bytes: float
    mean_pixels: float
    jpeg_share: float
    pixel_type: PixelType = RGB


def estimate_stats(sources: Collection[RecordSource], limit: SizeLimit | None) -> SourceStats:
    """Estimate the joint statistics of sources from sampled records of each; unreadable ones are ignored."""
    records = sum(map(len, sources))
    sums = np.zeros(3)
    for source in sources:
        sampled = (_sizes_of(source, index, limit) for index in evenly_spaced(len(source), SAMPLE_RECORDS))
        if found := [each for each in sampled if each is not None]:
            sums += np.mean(found, axis=0) * len(source)
    return SourceStats(records, *(sums / max(records, 1)).tolist())


def _sizes_of(source: RecordSource, index: int, limit: SizeLimit | None) -> tuple[int, int, bool] | None:
    """Return a record's size in bytes, its pixels as stored, and True if it is a JPEG; None without image."""
    try:
        image = source.read(index).image
        if image is None:
            return None
        if isinstance(image, np.ndarray):
            height, width, is_jpeg, size_bytes = *image.shape[:2], False, image.nbytes
        else:
            header = read_header(image)
            height, width, size_bytes = header.height, header.width, len(image)
            is_jpeg = header.format == "jpeg"
    except FastloadError:
        return None
    target = limit.target(height, width) if limit is not None else None
    height, width = target or (height, width)
    return size_bytes, height * width, is_jpeg


def choose_encoding(
    stats: SourceStats,
    *,
    is_resized: bool,
    has_jpegtran: bool,
    space_bytes: int | None,
    has_blosc: bool = False,
) -> tuple[str, str]:
    """Choose raw pixels, the fastest encoding, if they fit; else the source's own pixels, tiled if possible.

    Those of other types than RGB are then compressed without loss, if Blosc is installed. A lossy encoding is
    chosen only if the pixels change anyway (`is_resized`) or nothing else fits into the space, by default
    `RAW_GROWTH` times the source. Returns the encoding's name and the reason. Raises OptionError if not even
    JPEG fits.
    """
    raw_bytes = float(stats.pixel_type.pixel_bytes) * stats.mean_pixels * stats.records
    source_bytes = stats.mean_source_bytes * stats.records
    space = space_bytes if space_bytes is not None else RAW_GROWTH * source_bytes
    allowed = f"{format_size(space)} allowed" + ("" if space_bytes is not None else " (4 × the source)")
    raw = f"raw pixels would take about {format_size(raw_bytes)} of {allowed}"
    if raw_bytes <= space:
        return ("raw", f"{raw}, and need no decoding")
    if stats.pixel_type != RGB and (has_blosc or is_resized):
        return ("blosc", f"{raw}; crops decode only the tiles that they touch")
    if stats.pixel_type != RGB:
        return (
            "keep",
            f"{raw}; lossless compression needs blosc2, which is not installed (pip install blosc2)",
        )
    jpeg_bytes = _JPEG_BYTES_PER_PIXEL * stats.mean_pixels * stats.records
    if (is_resized or source_bytes > space) and jpeg_bytes > space:
        raise OptionError(
            f"the source takes {format_size(source_bytes)}, JPEG would take about {format_size(jpeg_bytes)} "
            f"of {allowed}: allow more, or limit the size with --max-side"
        )
    if is_resized:
        return ("jpeg", f"{raw}; images are resized, so their pixels change anyway")
    if source_bytes > space:
        return ("jpeg", f"the source takes {format_size(source_bytes)} of {allowed}; JPEG is lossy")
    if stats.jpeg_share < 0.5:
        share = f"{1 - stats.jpeg_share:.0%} of the files are not JPEG"
        return ("keep", f"{raw}; {share}, so lossless tiles gain nothing")
    if stats.mean_pixels <= _LEAST_TILED_PIXELS:
        return ("keep", f"{raw}; images are small, so lossless tiles gain nothing")
    if not has_jpegtran:
        return (
            "keep",
            f"{raw}; lossless tiles need jpegtran, which is not installed "
            "(Debian: apt install libjpeg-turbo-progs; macOS: brew install jpeg-turbo; "
            "conda: libjpeg-turbo)",
        )
    return ("tiled", f"{raw}; lossless tiles keep every pixel, in files of the same size")
