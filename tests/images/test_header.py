"""Image headers against PIL, and detection of damage."""

import contextlib
import io
import struct

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fastload.errors import DecodeError
from fastload.images.decode import decode
from fastload.images.exif import orientation_segment, read_orientation
from fastload.images.header import ImageHeader, orientation_of, read_header, validate_file
from fastload.images.jpeg import parse_jpeg
from fastload.images.pixel_types import PixelType
from fastload.images.region import upright
from tests.images.samples import ODD_SIZES, exif, file_of, photo, sizes

CHANNELS = {"1": 1, "L": 1, "I;16": 1, "LA": 2, "RGB": 3, "P": 3, "RGBA": 4, "CMYK": 4}


def expected(data: bytes) -> tuple[int, int, int]:
    with Image.open(io.BytesIO(data)) as image:
        return image.height, image.width, CHANNELS[image.mode]


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
def test_jpeg_header_equals_pils(mode, options):
    data = file_of(photo(37, 53), mode=mode, **options)
    assert read_header(data).shape == expected(data)
    assert (read_header(data).format, read_header(data).bit_depth) == ("jpeg", 8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_header_equals_pils(mode):
    data = file_of(photo(37, 53), "PNG", mode)
    assert read_header(data).shape == expected(data)
    assert read_header(data).format == "png"


@given(sizes(6000), st.sampled_from(["JPEG", "PNG"]))
@settings(max_examples=30)
def test_any_size_is_read(size, file_format):
    data = file_of(np.zeros(size, np.uint8), file_format)
    assert read_header(data).shape == (*size, 1)


@pytest.mark.parametrize("size", ODD_SIZES)
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM"])
def test_odd_sizes_are_read_in_every_format(size, file_format):
    assert read_header(file_of(photo(*size), file_format)).shape == (*size, 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_png(channels):
    pixels = photo(20, 30).astype(np.uint16)[:, :, :channels] * 257
    data = cv2.imencode(".png", pixels)[1].tobytes()
    assert read_header(data) == ImageHeader("png", 20, 30, channels, 16, 1, PixelType("uint16", channels))


def test_16_bit_tiff():
    data = cv2.imencode(".tiff", photo(20, 30)[:, :, 0].astype(np.uint16) * 257)[1].tobytes()
    assert read_header(data) == ImageHeader("other", 20, 30, 1, 16, 1, PixelType("uint16", 1))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_orientation_is_read(orientation, endian, file_format):
    data = file_of(photo(8, 9), file_format, exif=exif(orientation, endian))
    assert read_header(data).orientation == orientation
    assert read_header(data).shape == (8, 9, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF", "GIF", "BMP", "JPEG2000"])
def test_upright_images_are_those_of_pil_and_opencv(orientation, file_format):
    tags = {"tiffinfo": {0x0112: orientation}} if file_format == "TIFF" else {"exif": exif(orientation)}
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = file_of(photo(20, 30), file_format, **options, **tags)
    found = upright(decode(data), orientation_of(data))
    with Image.open(io.BytesIO(data)) as image:
        assert np.abs(found - np.asarray(ImageOps.exif_transpose(image).convert("RGB"), int)).max() <= 1
    # OpenCV 4 does not turn WebP. Of AVIF, OpenCV reads EXIF, and PIL, like Ultralytics, the rotation.
    if file_format != "AVIF" and (file_format != "WEBP" or int(cv2.__version__.split(".")[0]) >= 5):
        theirs = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        assert np.array_equal(found, theirs[:, :, ::-1])


@given(st.binary(max_size=80), st.sampled_from([b"RIFF    WEBPVP8X", b"\0\0\0\x14ftypavif" + bytes(8)]))
def test_orientation_of_damaged_files_is_a_number(junk, start):
    meta = struct.pack(">I4sI", 12 + len(junk), b"meta", 0)
    assert orientation_of(start + junk) in range(1, 9)
    assert orientation_of(start + meta + junk) in range(1, 9)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_invalid_orientation_is_upright(orientation):
    assert read_header(file_of(photo(8, 9), exif=exif(orientation))).orientation == 1


@given(st.binary(max_size=60), st.sampled_from([b"", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08"]))
def test_malformed_exif_is_upright(junk, start):
    assert 1 <= read_orientation(start + junk) <= 8


def test_written_orientation_is_read_back():
    for orientation in range(1, 9):
        assert read_orientation(orientation_segment(orientation)[10:]) == orientation


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=str)
def test_truncated_jpeg_is_refused(options):
    data = file_of(photo(24, 24), exif=exif(6), **options)
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            read_header(data[:length])


def test_truncated_jpeg_with_a_complete_thumbnail_is_refused():
    data = file_of(photo(64, 64), exif=b"Exif\0\0" + file_of(photo(8, 8)))
    assert data.count(b"\xff\xd9") == 2
    with pytest.raises(DecodeError, match="truncated"):
        read_header(data[:-20])


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_bytes_after_the_end_are_allowed(file_format):
    data = file_of(photo(24, 24), file_format)
    assert read_header(data + bytes(5000)) == read_header(data)


def test_stray_and_padding_bytes_between_segments_are_skipped():
    data = file_of(photo(24, 24))
    place = data.index(b"\xff\xdb")
    for stray in (b"\0stray\0", b"\xff\xff\xff"):
        assert read_header(data[:place] + stray + data[place:]).shape == (24, 24, 3)
    assert read_header(data[:2] + b"\xff\xff\xff" + data[2:]).shape == (24, 24, 3)


def test_truncated_png_is_refused():
    data = file_of(photo(12, 12), "PNG")
    for length in range(8, len(data)):
        with pytest.raises(DecodeError):
            read_header(data[:length])


def test_png_with_any_byte_changed_is_refused():
    data = file_of(photo(12, 12), "PNG", exif=exif(6))
    for offset in range(8, len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 0x10
        with pytest.raises(DecodeError):
            read_header(bytes(damaged))


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"not an image at all", bytes(100)]
)
def test_foreign_bytes_are_refused(data):
    with pytest.raises(DecodeError):
        read_header(data)


@given(st.binary(max_size=200))
def test_any_bytes_after_a_jpeg_signature_raise_only_decode_error(junk):
    with contextlib.suppress(DecodeError):
        read_header(b"\xff\xd8\xff" + junk)


@given(st.data())
@settings(max_examples=300)
def test_jpeg_with_a_changed_header_raises_only_decode_error(data):
    full = bytearray(file_of(photo(8, 8), exif=exif(6)))
    for _ in range(data.draw(st.integers(1, 3))):
        full[data.draw(st.integers(2, 700))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        validate_file(bytes(full))


@pytest.mark.parametrize("options", [{}, {"mode": "L"}, {"progressive": True}], ids=str)
def test_jpeg_with_one_changed_header_bit_is_accepted_only_if_it_decodes(options):
    data = file_of(photo(24, 24), **options)
    for offset in range(parse_jpeg(data).scan_offset):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[offset] ^= 1 << bit
            with contextlib.suppress(DecodeError):
                validate_file(bytes(damaged))
                try:
                    decode(bytes(damaged))
                except DecodeError:
                    pytest.fail(f"byte {offset}, bit {bit}: accepted, and cannot be decoded")


def test_unusual_jpeg_that_decodes_is_accepted():
    data = file_of(photo(24, 24))
    abbreviated = data[: data.index(b"\xff\xc4")] + data[data.index(b"\xff\xda") :]  # as in Motion JPEG
    assert validate_file(abbreviated).pixels is not None
    np.testing.assert_array_equal(decode(abbreviated), decode(data))
    assert read_header(abbreviated).shape == (24, 24, 3)


@pytest.mark.parametrize("options", [{}, {"mode": "L"}, {"mode": "CMYK"}, {"subsampling": 0}])
def test_usual_jpegs_are_validated_without_decoding(options):
    assert validate_file(file_of(photo(300, 400), **options)).pixels is None


def test_float_tiff():
    data = cv2.imencode(".tiff", photo(20, 30)[:, :, 0].astype(np.float32))[1].tobytes()
    assert read_header(data) == ImageHeader("other", 20, 30, 1, 32, 1, PixelType("float32", 1))


def test_tiff_of_doubles_is_refused_with_its_type():
    data = cv2.imencode(".tiff", photo(20, 30)[:, :, 0].astype(np.float64))[1].tobytes()
    with pytest.raises(DecodeError, match="float32, got float64 of shape"):
        read_header(data)


def test_jpeg_of_twelve_bits_is_refused():
    data = bytearray(file_of(photo(16, 16)))
    layout = parse_jpeg(bytes(data))
    data[layout.sof_offset + 4] = 12
    with pytest.raises(DecodeError):
        validate_file(bytes(data))
