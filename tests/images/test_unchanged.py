"""Tests of images of 16 bits and floats: files are read as by their libraries, encodings keep each number."""

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
import tifffile
import torch

from fastload.contracts import Box
from fastload.errors import DecodeError, OptionError, SourceError
from fastload.images.encodings import ENCODINGS, Blosc, Keep, Raw, encoding_named
from fastload.images.header import read_header, validate_file
from fastload.images.numpy_files import as_npy
from fastload.images.pixel_types import RGB, PixelType
from fastload.images.resize import SizeLimit
from fastload.images.source_pixels import converted_source, pixel_type_of
from fastload.images.unchanged import decode_as, decode_region_as
from tests.images.samples import photo
from tests.images.wide import DTYPES, npy_of, png_of, scene, tiff_of

TYPES = [
    ("uint16", 1),
    ("uint16", 3),
    ("uint16", 4),
    ("int16", 1),
    ("float16", 2),
    ("float32", 1),
    ("uint8", 6),
]


def files_of(image: np.ndarray) -> dict[str, bytes]:
    files = {
        "npy": npy_of(image),
        "npy by columns": npy_of(np.asfortranarray(image)),
        "npy, big-endian": npy_of(image.astype(image.dtype.newbyteorder(">"))),
        "tiff": tiff_of(image),
        "tiff in tiles": tiff_of(image, tile=(32, 48), compression="zlib"),
        "tiff of planes": tiff_of(image, planarconfig="separate", rowsperstrip=7),
        "tiff, big-endian": tiff_of(image, byteorder=">"),
    }
    archive = io.BytesIO()
    np.savez_compressed(archive, image)
    files["npz"] = archive.getvalue()
    if image.dtype == np.uint16 and image.shape[2] in (1, 3, 4):
        files["png"] = png_of(image)
    if image.dtype == np.float32 and image.shape[2] == 1:
        files["pfm"] = cv2.imencode(".pfm", image)[1].tobytes()
    return files


@pytest.mark.parametrize(("dtype", "channels"), TYPES)
def test_files_are_decoded_to_the_numbers_that_were_written(dtype, channels):
    image = scene(75, 131, channels, dtype)
    kind = PixelType(dtype, channels)
    for name, data in files_of(image).items():
        header = validate_file(data).header
        assert (name, header.pixel_type, header.shape) == (name, kind, image.shape)
        np.testing.assert_array_equal(decode_as(data, kind), image, err_msg=name)


@pytest.mark.parametrize(("dtype", "channels"), TYPES)
@pytest.mark.parametrize(
    "box", [Box(0, 0, 75, 131), Box(20, 30, 40, 50), Box(74, 130, 1, 1), Box(31, 47, 2, 2)]
)
def test_regions_are_equal_to_decoding_all_and_cropping(dtype, channels, box):
    image = scene(75, 131, channels, dtype)
    for name, data in files_of(image).items():
        region = decode_region_as(data, (75, 131), box, PixelType(dtype, channels))
        np.testing.assert_array_equal(region, box.of(image), err_msg=name)


def test_a_region_of_a_tiff_reads_its_tiles_alone():
    image = scene(512, 512, 4, "uint16")
    data = tiff_of(image, tile=(64, 64))
    read = 0

    class Counted(bytes):
        def __getitem__(self, key):
            nonlocal read
            part = super().__getitem__(key)
            read += len(part) if isinstance(key, slice) else 1
            return part

    region = decode_region_as(Counted(data), (512, 512), Box(100, 100, 60, 60), PixelType("uint16", 4))
    np.testing.assert_array_equal(region, image[100:160, 100:160])
    assert read <= 4 * 64 * 64 * 8 + 512  # four tiles, and the first bytes that show the format


def test_a_grey_png_of_16_bits_with_alpha_has_two_channels():
    image = scene(20, 30, 2, "uint16")
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in image)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 30, 20, 16, 4, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    assert read_header(data).pixel_type == PixelType("uint16", 2)
    np.testing.assert_array_equal(decode_as(data, PixelType("uint16", 2)), image)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_colours_with_alpha_in_a_tiff(dtype):
    image = scene(20, 30, 4, dtype)
    data = tiff_of(image, photometric="rgb", extrasamples=["unassalpha"])
    if dtype == "uint16":
        np.testing.assert_array_equal(decode_as(data, PixelType("uint16", 4)), image)
    else:  # a picture of 8 bits, whose alpha OpenCV and Pillow treat in different ways
        with pytest.raises(DecodeError, match="OpenCV and Pillow must read a file alike"):
            validate_file(data)


@pytest.mark.parametrize("name", ["keep", "raw", "blosc"])
@pytest.mark.parametrize(("dtype", "channels"), [*TYPES, ("float32", 64), ("uint8", 1), ("uint8", 2)])
@pytest.mark.parametrize("size", [(1, 1), (75, 131), (300, 129)])
def test_encodings_keep_every_number_and_decode_regions(name, dtype, channels, size, tmp_path):
    if channels > 4 and min(size) < channels:
        size = (130, 70)
    image = scene(*size, channels, dtype)
    encoding = encoding_named(name, pixel_type=PixelType(dtype, channels))
    if encoding.pixel_type == PixelType("uint8", 1):
        pytest.skip("grey of 8 bits is RGB") if name != "raw" else None
    stored = encoding.encode(image, None, tmp_path)
    assert stored.shape == image.shape
    for data in (stored.data, np.frombuffer(b"x" + bytes(stored.data), np.uint8)[1:]):  # not aligned
        restored = encoding.decode(data, stored.shape)
        assert restored.dtype == image.dtype
        np.testing.assert_array_equal(restored, image)
        box = Box(size[0] // 3, size[1] // 4, max(1, size[0] // 2), max(1, size[1] // 2))
        np.testing.assert_array_equal(encoding.decode_box(data, stored.shape, box), box.of(image))
    assert bytes(encoding.encode(image, None, tmp_path).data) == bytes(stored.data)


@pytest.mark.parametrize("name", ["raw", "blosc"])
def test_limits_are_applied_in_the_images_own_dtype(name, tmp_path):
    image = scene(80, 60, 4, "uint16")
    encoding = encoding_named(name, pixel_type=PixelType("uint16", 4))
    stored = encoding.encode(image, SizeLimit(max_side=40), tmp_path)
    planes = torch.from_numpy(np.moveaxis(image, 2, 0).astype(np.float32))[None]
    wanted = torch.nn.functional.interpolate(planes, (40, 30), mode="bilinear", antialias=True)[0].round()
    np.testing.assert_array_equal(
        encoding.decode(stored.data, stored.shape), np.moveaxis(wanted.numpy(), 0, 2)
    )


@pytest.mark.parametrize("name", [name for name, each in ENCODINGS.items() if not each.takes_any_type])
def test_encodings_of_pictures_refuse_other_types(name):
    with pytest.raises(
        OptionError, match=r"stores uint8 in 3 channels, got .* uint16 in 1 channel: choose keep or"
    ):
        encoding_named(name, pixel_type=PixelType("uint16", 1))


def test_blosc_holds_pictures_too(tmp_path):
    stored = Blosc().encode(photo(75, 131), None, tmp_path)
    np.testing.assert_array_equal(Blosc().decode(stored.data, stored.shape), photo(75, 131))


def test_damaged_tiles_of_blosc_are_refused(tmp_path):
    encoding = Blosc(PixelType("uint16", 4))
    stored = encoding.encode(scene(300, 200, 4, "uint16"), None, tmp_path)
    data = bytes(stored.data)
    lengths = len(data[: 4 * 6])
    for damaged in (
        data[:-1],
        data[:10],
        b"",
        data[:lengths] + bytes(len(data) - lengths),
        data[:30] + b"\xff" * 9,
    ):
        with pytest.raises(DecodeError, match="compressed pixels must have"):
            encoding.decode(damaged, stored.shape)
    with pytest.raises(DecodeError, match="tiles of"):
        encoding.decode(data, (299, 200, 4))


@pytest.mark.parametrize("given", DTYPES)
@pytest.mark.parametrize("wanted", DTYPES)
@pytest.mark.parametrize("channels", [3, 5])
def test_conversions_are_those_of_torchvision(given, wanted, channels):
    from torchvision.transforms.v2.functional import to_dtype

    image = np.maximum(scene(30, 40, channels, given), 0)
    kind = PixelType(wanted, channels)
    assert pixel_type_of(image, wanted) == kind
    planes = torch.from_numpy(np.moveaxis(image, 2, 0))
    # Half precision has too few digits for torchvision's products: single precision, then rounded once.
    exact = planes.float() if given == "float16" else planes
    final = getattr(torch, wanted)
    reference = to_dtype(exact, torch.float32 if wanted == "float16" else final, scale=True).to(final)
    np.testing.assert_array_equal(converted_source(image, kind), np.moveaxis(reference.numpy(), 0, 2))


def test_a_file_of_the_wanted_type_is_not_rewritten():
    data = tiff_of(scene(20, 30, 4, "uint16"))
    assert converted_source(data, PixelType("uint16", 4)) is data


def test_a_png_of_16_bits_becomes_a_picture():
    data = png_of(scene(20, 30, 1, "uint16"))
    assert pixel_type_of(data, "uint8") == RGB
    wanted = decode_as(data, PixelType("uint16", 1)) >> 8
    np.testing.assert_array_equal(converted_source(data, RGB), np.repeat(wanted, 3, axis=2))


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (np.full((8, 8, 5), -1, np.int16), "uint16"),
        (np.full((8, 8, 5), 1.5, np.float32), "uint8"),
        (np.full((8, 8, 5), np.nan, np.float32), "uint8"),
        (np.full((8, 8, 5), 1e9, np.float32), "float16"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(image, wanted):
    with pytest.raises(DecodeError, match="numbers must"):
        converted_source(image, PixelType(wanted, 5))


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((3, 32, 32), np.uint8),
        np.zeros((4, 4), np.float64),
        np.zeros((80, 80, 65), np.uint8),
        np.zeros(7),
    ],
    ids=lambda image: f"{image.dtype} {image.shape}",
)
def test_arrays_that_are_no_images(image, tmp_path):
    with pytest.raises(SourceError, match="pixels must be"):
        Raw().encode(image, None, tmp_path)
    with pytest.raises(DecodeError, match="to be an image"):
        read_header(npy_of(image))


def test_npy_files_of_one_channel_have_two_dimensions():
    image = scene(20, 30, 1, "float32")
    assert np.load(io.BytesIO(as_npy(image))).shape == (20, 30)
    assert np.load(io.BytesIO(as_npy(scene(20, 30, 2, "float32")))).shape == (20, 30, 2)


def test_files_that_hold_several_images_are_refused():
    pages = io.BytesIO()
    tifffile.imwrite(pages, np.zeros((3, 40, 50), np.uint16), photometric="minisblack", metadata=None)
    archive = io.BytesIO()
    np.savez(archive, a=np.zeros((4, 4)), b=np.zeros((4, 4)))
    for data, message in ((pages.getvalue(), "one image, got 3 pages"), (archive.getvalue(), "one array")):
        with pytest.raises(DecodeError, match=message):
            read_header(data)


def test_overviews_of_a_tiff_are_no_further_images():
    image = scene(64, 64, 4, "uint16")
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(image, photometric="minisblack", planarconfig="contig", subifds=0)
        writer.write(image[::2, ::2], photometric="minisblack", planarconfig="contig", subfiletype=1)
    np.testing.assert_array_equal(decode_as(file.getvalue(), PixelType("uint16", 4)), image)


def test_a_record_of_another_type_than_its_manifest_says_is_damaged():
    data = npy_of(scene(20, 30, 2, "float32"))
    with pytest.raises(DecodeError, match=r"must be float32 in 3 channels, .* got float32 in 2 channels"):
        Keep(PixelType("float32", 3)).decode(data, (20, 30, 3))
