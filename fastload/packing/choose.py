"""`--encode auto`: which encoding suits a source, and why.

Looking at a few records and deciding are two functions; the decision is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastload.errors import FastloadError, OptionError
from fastload.images.header import read_header
from fastload.images.resize import SizeLimit
from fastload.sources.protocol import Source
from fastload.system.units import size

# Records looked at. The mean size of 64 records is within a tenth of the truth for photos whose sizes
# vary as much as ImageNet's (standard deviation about 0.7 of the mean); headers of files cost 0.1 ms.
SAMPLE_RECORDS = 64

# Without --space, raw pixels may take up to this many times the source's size. Small images gain most
# from being raw (no decoding at all, whole batches at once) and grow least: CIFAR's thumbnails become
# 1.4 to 4 times larger than their JPEG and PNG files, photographs 5 to 12 times.
RAW_GROWTH = 4.0

# A JPEG of quality 90 with 4:2:0 takes about this much of a pixel's 3 bytes (measured on ImageNet
# photos: 62–75 KB at 470 × 390).
_JPEG_BYTES_PER_PIXEL = 0.4


@dataclass(frozen=True, slots=True)
class Sample:
    """What a few records of a source tell.

    Attributes:
        records: The number of records in the source.
        mean_source_bytes: Of a record as the source has it.
        mean_pixels: Of an image as it would be stored, in height × width.
        jpeg_share: The share of JPEG files, 0 to 1.
    """

    records: int
    mean_source_bytes: float
    mean_pixels: float
    jpeg_share: float


@dataclass(frozen=True, slots=True)
class Choice:
    """An encoding and the reason for it."""

    encode: str
    reason: str


def look_at(source: Source, limit: SizeLimit | None) -> Sample:
    """Reads the headers of a few evenly spaced records. Those that cannot be read are left out."""
    sizes, pixels, jpegs = [], [], 0
    for index in source.sample(SAMPLE_RECORDS):
        try:
            image = source.read(index).image
            if isinstance(image, np.ndarray):
                height, width, is_jpeg, size = *image.shape[:2], False, image.nbytes
            else:
                header = read_header(image)
                height, width, size = header.height, header.width, len(image)
                is_jpeg = header.format == "jpeg"
        except FastloadError:
            continue
        target = limit.target(height, width) if limit is not None else None
        height, width = target or (height, width)
        sizes.append(size)
        pixels.append(height * width)
        jpegs += is_jpeg
    count = max(len(sizes), 1)
    return Sample(len(source), sum(sizes) / count, sum(pixels) / count, jpegs / count)


def combine(samples: Sequence[Sample]) -> Sample:
    """One sample for several splits: they share an encoding."""
    records = sum(sample.records for sample in samples)
    shares = [sample.records / max(records, 1) for sample in samples]

    def mean(name: str) -> float:
        return float(sum(share * getattr(s, name) for share, s in zip(shares, samples, strict=True)))

    return Sample(records, mean("mean_source_bytes"), mean("mean_pixels"), mean("jpeg_share"))


def choose_encoding(
    sample: Sample, *, is_resized: bool, has_jpegtran: bool, space_bytes: int | None
) -> Choice:
    """Chooses how to store a source's images.

    Raw where it fits, because nothing is faster to read; otherwise the source's own pixels in the form
    that decodes fastest. A lossy encoding is chosen only where the pixels change anyhow (a size was
    asked for) or where the space that was allowed leaves nothing else.

    Args:
        sample: What the source holds.
        is_resized: Whether a size limit was given.
        has_jpegtran: Whether lossless tiles can be made.
        space_bytes: The space allowed; None for `RAW_GROWTH` times the source.

    Raises:
        OptionError: Not even JPEG fits into the space allowed.
    """
    raw_bytes = 3.0 * sample.mean_pixels * sample.records
    source_bytes = sample.mean_source_bytes * sample.records
    space = space_bytes if space_bytes is not None else RAW_GROWTH * source_bytes
    allowed = f"{size(space)} allowed" + ("" if space_bytes is not None else " (4 × the source)")
    raw = f"raw pixels would take about {size(raw_bytes)} of {allowed}"
    if raw_bytes <= space:
        return Choice("raw", f"{raw}, and need no decoding")
    jpeg_bytes = _JPEG_BYTES_PER_PIXEL * sample.mean_pixels * sample.records
    if is_resized:
        if jpeg_bytes > space:
            raise OptionError(f"even JPEG would take about {size(jpeg_bytes)} of {allowed}: allow more")
        return Choice("jpeg", f"{raw}; images are resized, so their pixels change anyhow")
    if source_bytes > space:
        if jpeg_bytes > space:
            raise OptionError(
                f"the source takes {size(source_bytes)}, JPEG would take about {size(jpeg_bytes)} of "
                f"{allowed}: allow more, or limit the size with --max-side"
            )
        return Choice("jpeg", f"the source takes {size(source_bytes)} of {allowed}; JPEG is lossy")
    return _lossless(sample, raw, has_jpegtran)


def _lossless(sample: Sample, raw: str, has_jpegtran: bool) -> Choice:
    if sample.jpeg_share < 0.5:
        share = f"{1 - sample.jpeg_share:.0%} of the files are no JPEG"
        return Choice("keep", f"{raw}; {share}, so lossless tiles gain nothing")
    if not has_jpegtran:
        return Choice(
            "keep",
            f"{raw}; lossless tiles need jpegtran, which is not installed "
            "(Debian: apt install libjpeg-turbo-progs; macOS: brew install jpeg-turbo; "
            "conda: libjpeg-turbo)",
        )
    return Choice("tiled", f"{raw}; lossless tiles keep every pixel, in files of the same size")
