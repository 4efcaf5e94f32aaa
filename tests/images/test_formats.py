"""Recognition of formats by the first bytes of a file, and of those that OpenCV reads."""

import io

import numpy as np
import pytest

from fastload.images.formats import HEAD_BYTES, format_of, unreadable_reason
from tests.folders import pixels
from tests.images.samples import file_of

READ = {
    "JPEG": "JPEG", "PNG": "PNG", "GIF": "GIF", "TIFF": "TIFF", "WEBP": "WebP", "BMP": "BMP", "PPM": "PNM",
    "JPEG2000": "JPEG 2000", "AVIF": "AVIF",
}  # fmt: skip
UNREAD = {"QOI": "QOI", "ICO": "ICO", "ICNS": "ICNS", "DDS": "DDS"}


@pytest.mark.parametrize("pil_format", [*READ, *UNREAD])
def test_format_is_recognised_and_its_support_known(pil_format):
    head = file_of(pixels(1, 32, 32), pil_format)[:HEAD_BYTES]
    found = format_of(head, ".txt")
    assert found == (READ | UNREAD)[pil_format]
    assert (unreadable_reason(found, head) is None) == (pil_format in READ)


@pytest.mark.parametrize(
    ("head", "suffix", "expected"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "", "HEIC"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "", "AVIF"),
        (b"\0\0\0\x18ftypisom\0\0\2\0isommp41", ".mp4", None),
        (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "", "camera raw"),
        (b"II*\0", ".NEF", "camera raw"),
        (b"II*\0", ".tiff", "TIFF"),
        (b"#?RADIANCE\n", ".hdr", "Radiance HDR"),
        (b'<?xml version="1.0"?>\n<svg width="1"/>', ".svg", "SVG"),
        (b"BMX is a sport of cycles", ".txt", None),
        (b"P5 is a prime number of pages", ".txt", None),
        (b"P5\n# a comment\n20 30\n255\n", "", "PNM"),
        (b"hello world", "", None),
        (b"", "", None),
    ],
)
def test_similar_first_bytes_are_distinguished(head, suffix, expected):
    assert format_of(head, suffix) == expected


def test_floating_point_formats_are_read():
    assert unreadable_reason("PFM", b"PF\n3 3\n-1\n") is None


def test_arrays_are_recognised_by_their_first_bytes():
    file = io.BytesIO()
    np.savez(file, np.zeros((2, 2)))
    assert format_of(file.getvalue()[:HEAD_BYTES]) == "NumPy archive"
    assert format_of(b"\x93NUMPY\x01\x00") == "NumPy"
    assert format_of(b"II*\0".ljust(128, b"\0") + b"DICM") == "DICOM"
    assert format_of(b"PK\x03\x04" + bytes(40)) is None
