"""Validation of files: accepted ones decode alike in OpenCV and Pillow; others are refused."""

import random
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from fastload.errors import DecodeError
from fastload.images.decode import decode
from fastload.images.encodings import Jpeg, Keep
from fastload.images.header import validate_file
from fastload.images.jpeg import parse_jpeg
from tests.commands import run_python
from tests.images.samples import exif, file_of, photo, pil_rgb

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PIXELS = photo(16, 16)
ROWS = zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS))
GREY_ROWS = zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS[:, :, 0]))
COLOURS = bytes(range(256)) * 3


def chunk(kind, body=b""):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def header(width=16, height=16, depth=8, colours=2, *methods):
    body = struct.pack(">IIBB", width, height, depth, colours) + bytes(methods or (0, 0, 0))
    return chunk(b"IHDR", body)


def png(*chunks):
    return SIGNATURE + b"".join(chunks) + chunk(b"IEND")


IDAT, PLTE = chunk(b"IDAT", ROWS), chunk(b"PLTE", COLOURS)
GREY = chunk(b"IDAT", GREY_ROWS)
UNREADABLE = "the bytes must be an image"
UNREADABLE_PNGS = {
    "no rows": (png(header()), UNREADABLE),
    "empty rows": (png(header(), chunk(b"IDAT")), UNREADABLE),
    "half of the rows": (png(header(), chunk(b"IDAT", ROWS[: len(ROWS) // 2])), UNREADABLE),
    "rows without their checksum": (png(header(), chunk(b"IDAT", ROWS[:-4])), UNREADABLE),
    "rows that are no zlib stream": (png(header(), chunk(b"IDAT", bytes(range(200)))), UNREADABLE),
    "an unknown filter": (png(header(1, 1), chunk(b"IDAT", zlib.compress(b"\x09abc"))), UNREADABLE),
    "fewer rows than in the header": (png(header(16, 20), IDAT), UNREADABLE),
    "no width": (png(header(0, 16), IDAT), UNREADABLE),
    "no height": (png(header(16, 0), IDAT), UNREADABLE),
    "a bomb": (
        png(header(40_000, 40_000), chunk(b"IDAT", zlib.compress(bytes(200_000)))),
        "at most 1,073,741,824",
    ),
    "an overlong side": (png(header(1_000_001, 1, 8, 0), IDAT), "1,000,000 a side"),
    "more pixels than bytes can make": (png(header(30_000, 30_000, 1, 0), IDAT), UNREADABLE),
    "a bit depth that does not exist": (png(header(16, 16, 4, 2), IDAT), UNREADABLE),
    "another compression": (png(header(16, 16, 8, 2, 1, 0, 0), IDAT), UNREADABLE),
    "no palette": (png(header(16, 16, 8, 3), GREY), UNREADABLE),
    "a palette after the rows": (png(header(16, 16, 8, 3), GREY, PLTE), UNREADABLE),
    "a palette too long": (
        png(header(16, 16, 8, 3), chunk(b"PLTE", bytes(771)), GREY),
        UNREADABLE,
    ),
    "two headers": (png(header(), header(), IDAT), UNREADABLE),
    "a header that is not first": (png(chunk(b"tEXt", b"a\0b"), header(), IDAT), UNREADABLE),
    "a header too long": (png(chunk(b"IHDR", bytes(14)), IDAT), "13 bytes"),
    "rows in two places": (
        png(header(), chunk(b"IDAT", ROWS[:9]), chunk(b"tEXt", b"a\0b"), chunk(b"IDAT", ROWS[9:])),
        UNREADABLE,
    ),
    "a chunk that must be known": (png(header(), chunk(b"ABCD"), IDAT), UNREADABLE),
}
ODD_PNGS = {
    "many chunks of rows": png(
        header(), *(chunk(b"IDAT", ROWS[at : at + 9]) for at in range(0, len(ROWS), 9))
    ),
    "bytes after the rows": png(header(), chunk(b"IDAT", ROWS + b"more")),
    "more rows than in the header": png(header(16, 12), IDAT),
    "a palette": png(header(16, 16, 8, 3), PLTE, GREY),
    "a palette for viewers with few colours": png(header(), PLTE, IDAT),
    "a private chunk": png(header(), chunk(b"prVt", b"1"), IDAT),
    "a background": png(header(), chunk(b"bKGD", bytes(6)), IDAT),
    "one bit": png(header(3_000, 3_000, 1, 0), chunk(b"IDAT", zlib.compress(bytes(376 * 3_000)))),
    "interlaced": None,
    "animated": None,
}


@pytest.mark.parametrize("kind", UNREADABLE_PNGS)
def test_png_that_no_decoder_reads_is_refused(kind, tmp_path):
    data, reason = UNREADABLE_PNGS[kind]
    with pytest.raises(DecodeError):
        decode(data)
    for encoding in (Keep(), Jpeg()):
        with pytest.raises(DecodeError, match=reason):
            encoding.encode(data, None, tmp_path)


@pytest.mark.parametrize("kind", ODD_PNGS)
def test_unusual_png_that_decodes_is_accepted(kind, tmp_path):
    data = ODD_PNGS[kind]
    if kind == "interlaced":
        rows = zlib.compress(b"\0\x80")
        data = png(header(1, 1, 8, 0, 0, 0, 1), chunk(b"IDAT", rows))
    elif kind == "animated":
        data = file_of(PIXELS, "PNG", save_all=True, append_images=[Image.fromarray(PIXELS[::-1])])
    assert validate_file(data).header.format == "png"
    np.testing.assert_array_equal(decode(data), pil_rgb(data))


def mutated_png(data, rng):
    """Damage a PNG's chunks, with right checksums."""
    chunks, at = [], len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append([data[at + 4 : at + 8], bytearray(data[at + 8 : at + 8 + length])])
        at += 12 + length
    number, kind = rng.randrange(len(chunks)), rng.randrange(6)
    body = chunks[number][1]
    if kind == 0 and body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del chunks[number]
    elif kind == 2:
        chunks.insert(rng.randrange(len(chunks) + 1), chunks[number])
    elif kind == 3:
        del body[rng.randint(0, len(body)) :]
    elif kind == 4:
        rng.shuffle(chunks)
    else:
        metadata = rng.choice([b"tRNS", b"gAMA", b"bKGD", b"iCCP", b"zTXt", b"sBIT", b"hIST", b"eXIf"])
        chunks.insert(rng.randrange(len(chunks)), [metadata, bytearray(rng.randbytes(rng.randrange(9)))])
    return SIGNATURE + b"".join(chunk(bytes(kind), bytes(body)) for kind, body in chunks)


@pytest.mark.parametrize("seed", range(400))
def test_mutated_png_that_is_accepted_decodes(seed):
    rng = random.Random(seed)
    source = rng.choice([file_of(PIXELS, "PNG"), file_of(PIXELS, "PNG", "P"), file_of(PIXELS, "PNG", "LA")])
    data = mutated_png(source, rng)
    try:
        validate_file(data)
    except DecodeError:
        return
    decode(data)


def marker_bytes(data):
    """Return the offsets of all bytes in a JPEG's marker segments, in the header and between scans."""
    places, at = [], 2
    while data[at : at + 2] != b"\xff\xd9":
        if data[at] == 0xFF and data[at + 1] not in (0x00, *range(0xD0, 0xD8)):
            end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
            places += range(at, end)
            at = end
        else:
            at += 1
    return places


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"progressive": True, "mode": "L"}], ids=str)
def test_mutated_jpeg_that_is_accepted_decodes(options):
    full = file_of(photo(24, 24), exif=exif(6), **options)
    places, rng = marker_bytes(full), random.Random(str(options))
    for place in [*places[::3], *(place + 1 for place in places if full[place : place + 1] == b"\xff")]:
        data = bytearray(full)
        data[place] = rng.choice([0x00, 0xC4, 0xD8, 0xD9, 0xDB, 0xDD, rng.randrange(256)])
        try:
            validate_file(bytes(data))
        except DecodeError:
            continue
        try:
            decode(bytes(data))
        except DecodeError:
            pytest.fail(f"byte {place} as {data[place]:02x}: accepted, and cannot be decoded")


@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_with_an_end_marker_but_too_few_codes_is_refused(progressive):
    data = bytearray(file_of(np.zeros((64, 64), np.uint8), optimize=True, progressive=progressive))
    validate_file(bytes(data))
    layout = parse_jpeg(bytes(data))
    struct.pack_into(">HH", data, layout.sof_offset + 5, 16_000, 16_000)
    with pytest.raises(DecodeError, match=r"must have at least \d+ bytes of codes"):
        validate_file(bytes(data))


def test_jpeg_of_one_colour_is_accepted():
    for mode in ("L", "RGB", "CMYK"):
        for progressive in (False, True):
            validate_file(
                file_of(np.zeros((640, 640, 3), np.uint8), mode=mode, optimize=True, progressive=progressive)
            )


def test_a_jpeg_too_large_for_decoders_is_refused():
    data = bytearray(file_of(photo(24, 24)))
    struct.pack_into(">HH", data, parse_jpeg(bytes(data)).sof_offset + 5, 40_000, 40_000)
    with pytest.raises(DecodeError, match="at most 1,073,741,824 pixels"):
        validate_file(bytes(data))


SHADES = photo(40, 50)
WITH_ALPHA = np.dstack([SHADES, np.linspace(0, 255, 40 * 50).reshape(40, 50).astype(np.uint8)])
SIXTEEN_BITS = cv2.cvtColor(SHADES, cv2.COLOR_RGB2GRAY).astype(np.uint16) * 250 + 7


def run_length_bmp():
    """Make a bitmap of 8 bits in runs of one pixel, like ImageMagick."""
    palette = b"".join(bytes((value, value, value, 0)) for value in range(256))
    rows = b"".join(b"".join(bytes((1, value)) for value in row) + b"\0\0" for row in SHADES[::-1, :, 0])
    rows += b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, 50, 40, 1, 8, 1, len(rows), 0, 0, 256, 0)
    offset = 14 + len(head) + len(palette)
    return struct.pack("<2sIHHI", b"BM", offset + len(rows), 0, 0, offset) + head + palette + rows


def opencv_file(suffix, pixels):
    return cv2.imencode(suffix, pixels)[1].tobytes()


ALIKE = {
    "webp": lambda: file_of(SHADES, "WEBP", quality=20),
    "webp without loss": lambda: file_of(SHADES, "WEBP", lossless=True),
    "webp with alpha": lambda: file_of(WITH_ALPHA, "WEBP"),
    "avif": lambda: file_of(SHADES, "AVIF", quality=40),
    "avif with alpha": lambda: file_of(WITH_ALPHA, "AVIF"),
    "gif": lambda: file_of(SHADES, "GIF"),
    "jpeg 2000": lambda: file_of(
        SHADES, "JPEG2000", irreversible=True, quality_mode="rates", quality_layers=[20]
    ),
    "jpeg 2000 in grey with alpha": lambda: file_of(WITH_ALPHA, "JPEG2000", "LA"),
    "bmp": lambda: file_of(SHADES, "BMP"),
    "bmp of one bit": lambda: file_of(SHADES, "BMP", "1"),
    "tiff": lambda: file_of(SHADES, "TIFF", compression="tiff_lzw"),
    "tiff of jpeg": lambda: file_of(SHADES, "TIFF", compression="jpeg"),
    "tiff in cmyk": lambda: file_of(SHADES, "TIFF", "CMYK"),
    "tiff with a palette": lambda: file_of(SHADES, "TIFF", "P"),
    "tiff turned": lambda: file_of(SHADES, "TIFF", exif=exif(6)),
    "ppm": lambda: file_of(SHADES, "PPM"),
    "pam, which Pillow does not know": lambda: opencv_file(".pam", SHADES),
}
MISREAD = {
    "run-length bmp": (run_length_bmp, "run-length"),
    "tiff with alpha": (lambda: file_of(WITH_ALPHA, "TIFF"), r"Pillow must read a file alike.*levels"),
    "ppm of four bits": (lambda: b"P6 8 1 15\n" + bytes(range(8)) * 3, r"alike.*levels"),
    "a cut tiff, of which OpenCV makes up colours": (
        lambda: file_of(SHADES, "TIFF", "P", compression="packbits")[:-100],
        "Pillow reads too",
    ),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_file_that_opencv_and_pillow_read_alike_is_accepted(kind, tmp_path):
    data = ALIKE[kind]()
    stored = Keep().encode(data, None, tmp_path)
    assert stored.data == data
    assert stored.shape[:2] == decode(data).shape[:2]


@pytest.mark.parametrize("suffix", [".tiff", ".pgm", ".pfm", ".hdr"])
def test_files_of_more_than_8_bits_keep_their_numbers(suffix, tmp_path):
    grey = SHADES[:, :, :1].astype(np.float32) / 3
    levels = SIXTEEN_BITS if suffix in (".tiff", ".pgm") else grey.repeat(3, axis=2)
    data = opencv_file(suffix, levels)
    encoding = Keep(validate_file(data).header.pixel_type)
    stored = encoding.encode(data, None, tmp_path)
    decoded = encoding.decode(stored.data, stored.shape)
    assert decoded.dtype == levels.dtype
    if suffix != ".hdr":  # which has one exponent for the three channels of a pixel
        np.testing.assert_array_equal(decoded.reshape(levels.shape), levels)


@pytest.mark.parametrize("kind", MISREAD)
def test_file_that_opencv_misreads_is_refused(kind, tmp_path):
    data, reason = MISREAD[kind][0](), MISREAD[kind][1]
    for encoding in (Keep(), Jpeg()):
        with pytest.raises(DecodeError, match=reason):
            encoding.encode(data, None, tmp_path)


def test_run_lengths_are_refused_without_pillow_too(tmp_path):
    (tmp_path / "runs.bmp").write_bytes(run_length_bmp())
    (tmp_path / "alpha.tiff").write_bytes(file_of(WITH_ALPHA, "TIFF"))
    program = """
import sys
sys.modules["PIL"] = None  # as if it were not installed
from pathlib import Path
from fastload.errors import DecodeError
from fastload.images.header import validate_file
validate_file(Path("alpha.tiff").read_bytes())
try:
    validate_file(Path("runs.bmp").read_bytes())
except DecodeError as error:
    print(error)
"""
    done = run_python("-c", program, cwd=tmp_path)
    assert "run-length" in done.stdout, done.stderr


def test_comparison_restores_pillows_settings():
    before = Image.MAX_IMAGE_PIXELS
    for kind in ("webp", "tiff"):
        validate_file(ALIKE[kind]())
    with pytest.raises(DecodeError):
        validate_file(MISREAD["tiff with alpha"][0]())
    assert before == Image.MAX_IMAGE_PIXELS


def test_formats_with_swapped_channels_in_opencv_decode_like_pillow():
    for kind in ("avif with alpha", "webp with alpha", "gif", "tiff"):
        np.testing.assert_array_equal(decode(ALIKE[kind]()), pil_rgb(ALIKE[kind]()))


def test_a_grey_pfm_decodes_to_three_channels():
    assert decode(opencv_file(".pfm", SHADES[:, :, 0].astype(np.float32))).shape == (40, 50, 3)


def test_a_bitmap_in_the_form_of_os2_keeps_its_colours(tmp_path):
    rows = b"".join(row[:, ::-1].tobytes() + bytes(-150 % 4) for row in SHADES[::-1])
    data = struct.pack("<2sIHHIIHHHH", b"BM", 26 + len(rows), 0, 0, 26, 12, 50, 40, 1, 24) + rows
    np.testing.assert_array_equal(pil_rgb(data), SHADES)
    assert Jpeg().encode(data, None, tmp_path).shape == (40, 50, 3)
