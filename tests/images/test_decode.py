"""Decoding against PIL, and lossless encoding."""

import struct
import zlib

import cv2
import numpy as np
import pytest

from fastload.errors import DecodeError, OptionError
from fastload.images.decode import decode, encode
from tests.images.samples import ODD_SIZES, TOLERANCES, exif, file_of, photo, pil_rgb


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", ODD_SIZES)
def test_png_decodes_to_pils_rgb(mode, size):
    data = file_of(photo(*size), "PNG", mode)
    np.testing.assert_array_equal(decode(data), pil_rgb(data))


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"iCCP", b"ICC Profile\0\0" + zlib.compress(b"no profile")),
        (b"cHRM", bytes(32)),
        (b"sRGB", b"\x09"),
        (b"gAMA", bytes(4)),
        (b"tIME", bytes(7)),
        (b"zTXt", b"key\0\0not compressed"),
    ],
)
def test_metadata_of_a_png_that_libpng_would_warn_of_is_left_out_in_silence(kind, body, mode, capfd):
    plain = file_of(photo(20, 30), "PNG", mode)
    chunk = struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    header = 33  # bytes of the signature and of IHDR
    data = plain[:header] + chunk * 2 + plain[header:]
    np.testing.assert_array_equal(decode(data), pil_rgb(plain))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("file_format", ["BMP", "TIFF", "PPM"])
def test_other_formats_decode_to_pils_rgb(file_format):
    data = file_of(photo(37, 53), file_format)
    np.testing.assert_array_equal(decode(data), pil_rgb(data))


def test_result_is_rgb_uint8_and_contiguous():
    red = np.zeros((20, 30, 3), np.uint8)
    red[:, :, 0] = 255
    pixels = decode(file_of(red))
    assert pixels.shape == (20, 30, 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert pixels[:, :, 0].min() > 240
    assert pixels[:, :, 1:].max() < 15


def test_cmyk_becomes_rgb():
    data = file_of(photo(37, 53), mode="CMYK", subsampling=0)
    difference = np.abs(decode(data).astype(int) - pil_rgb(data))
    assert difference.max() <= TOLERANCES["CMYK against PIL"]


def test_upper_8_of_16_bits_are_used():
    pixels = photo(20, 30)
    data = encode(pixels, ".png")
    deep = cv2.imencode(".png", pixels[:, :, ::-1].astype(np.uint16) * 256 + 200)[1].tobytes()
    np.testing.assert_array_equal(decode(deep), decode(data))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_orientation_is_not_applied(orientation, file_format):
    upright = file_of(photo(20, 30), file_format)
    turned = file_of(photo(20, 30), file_format, exif=exif(orientation))
    np.testing.assert_array_equal(decode(turned), decode(upright))


def test_read_only_view_decodes_like_bytes():
    data = file_of(photo(20, 30))
    view = np.frombuffer(b"before" + data + b"after", np.uint8)[6:-5]
    assert not view.flags.writeable
    np.testing.assert_array_equal(decode(view), decode(data))


@pytest.mark.parametrize("data", [b"", b"not an image", b"\xff\xd8\xff\xe0" + bytes(50)])
def test_unreadable_bytes_are_refused(data):
    with pytest.raises(DecodeError, match=r"must (be an image|describe its image|have bytes)"):
        decode(data)


@pytest.mark.parametrize("size", ODD_SIZES)
def test_png_round_trips(size):
    pixels = photo(*size)
    np.testing.assert_array_equal(decode(encode(pixels, ".png")), pixels)
    np.testing.assert_array_equal(decode(encode(pixels[:, :, 1], ".png"))[:, :, 2], pixels[:, :, 1])


def test_an_image_too_large_for_its_format_is_refused():
    with pytest.raises(OptionError, match="1x65501 pixels"):
        encode(np.zeros((1, 65501), np.uint8), ".jpg")
