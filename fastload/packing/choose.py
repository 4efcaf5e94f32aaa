"""Choice of an encoding for `--encode auto`, from a few sampled records and the space allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastload.errors import FastloadError, OptionError
from fastload.images.header import read_header
from fastload.images.resize import SizeLimit
from fastload.sources.protocol import Source, evenly_spaced
from fastload.system.units import format_size

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
class SourceStats:
    """Statistics of a source, estimated from sampled records.

    `mean_pixels` is the mean height × width of an image as it would be stored, `jpeg_share` is from 0 to 1.
    """

    records: int
    mean_source_bytes: float
    mean_pixels: float
    jpeg_share: float


@dataclass(frozen=True, slots=True)
class EncodingChoice:
    """An encoding and the reason for it."""

    encode: str  # "" for records without images
    reason: str


def estimate_stats(source: Source, limit: SizeLimit | None) -> SourceStats:
    """Estimate a source's statistics from the headers of sampled records; unreadable ones are ignored."""
    sizes, pixels, jpegs = [], [], 0
    for index in evenly_spaced(len(source), SAMPLE_RECORDS):
        try:
            image = source.read(index).image
            if image is None:
                continue
            if isinstance(image, np.ndarray):
                height, width, is_jpeg, size_bytes = *image.shape[:2], False, image.nbytes
            else:
                header = read_header(image)
                height, width, size_bytes = header.height, header.width, len(image)
                is_jpeg = header.format == "jpeg"
        except FastloadError:
            continue
        target = limit.target(height, width) if limit is not None else None
        height, width = target or (height, width)
        sizes.append(size_bytes)
        pixels.append(height * width)
        jpegs += is_jpeg
    count = max(len(sizes), 1)
    return SourceStats(len(source), sum(sizes) / count, sum(pixels) / count, jpegs / count)


def combine(splits: Sequence[SourceStats]) -> SourceStats:
    """Return the joint statistics of several splits, which share one encoding."""
    records = sum(stats.records for stats in splits)
    means = [(stats.mean_source_bytes, stats.mean_pixels, stats.jpeg_share) for stats in splits]
    shares = [stats.records / records for stats in splits]
    return SourceStats(records, *np.average(means, axis=0, weights=shares).tolist())


def choose_encoding(
    stats: SourceStats, *, is_resized: bool, has_jpegtran: bool, space_bytes: int | None
) -> EncodingChoice:
    """Choose raw pixels, the fastest encoding, if they fit; else the source's own pixels, tiled if possible.

    A lossy encoding is chosen only if the pixels change anyway (`is_resized`) or nothing else fits into the
    space, by default `RAW_GROWTH` times the source. Raises OptionError if not even JPEG fits.
    """
    raw_bytes = 3.0 * stats.mean_pixels * stats.records
    source_bytes = stats.mean_source_bytes * stats.records
    space = space_bytes if space_bytes is not None else RAW_GROWTH * source_bytes
    allowed = f"{format_size(space)} allowed" + ("" if space_bytes is not None else " (4 × the source)")
    raw = f"raw pixels would take about {format_size(raw_bytes)} of {allowed}"
    if raw_bytes <= space:
        return EncodingChoice("raw", f"{raw}, and need no decoding")
    jpeg_bytes = _JPEG_BYTES_PER_PIXEL * stats.mean_pixels * stats.records
    if (is_resized or source_bytes > space) and jpeg_bytes > space:
        raise OptionError(
            f"the source takes {format_size(source_bytes)}, JPEG would take about {format_size(jpeg_bytes)} "
            f"of {allowed}: allow more, or limit the size with --max-side"
        )
    if is_resized:
        return EncodingChoice("jpeg", f"{raw}; images are resized, so their pixels change anyway")
    if source_bytes > space:
        return EncodingChoice(
            "jpeg", f"the source takes {format_size(source_bytes)} of {allowed}; JPEG is lossy"
        )
    if stats.jpeg_share < 0.5:
        share = f"{1 - stats.jpeg_share:.0%} of the files are not JPEG"
        return EncodingChoice("keep", f"{raw}; {share}, so lossless tiles gain nothing")
    if stats.mean_pixels <= _LEAST_TILED_PIXELS:
        return EncodingChoice("keep", f"{raw}; images are small, so lossless tiles gain nothing")
    if not has_jpegtran:
        return EncodingChoice(
            "keep",
            f"{raw}; lossless tiles need jpegtran, which is not installed "
            "(Debian: apt install libjpeg-turbo-progs; macOS: brew install jpeg-turbo; "
            "conda: libjpeg-turbo)",
        )
    return EncodingChoice("tiled", f"{raw}; lossless tiles keep every pixel, in files of the same size")
