"""Conformance suite of encodings, and tests of each."""

import io
import pickle
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from fastload.contracts import Box
from fastload.errors import DecodeError, OptionError, SourceError
from fastload.images.decode import decode
from fastload.images.encoding_names import ENCODING_NAMES
from fastload.images.encodings import ENCODINGS, Jpeg, Keep, Raw, Tiled, Yuv420, encoding_named
from fastload.images.header import read_header
from fastload.images.jpeg import index_tiles, parse_jpeg
from fastload.images.nv12 import nv12_size, nv12_to_rgb, rgb_to_nv12
from fastload.images.resize import SizeLimit, resize
from tests.images.samples import ODD_SIZES, exif, file_of, photo

ROOT = Path(__file__).parents[2]

FILES = {
    "jpeg": lambda: file_of(photo(75, 131)),
    "jpeg 4:4:4": lambda: file_of(photo(75, 131), subsampling=0),
    "progressive": lambda: file_of(photo(75, 131), progressive=True),
    "grey jpeg": lambda: file_of(photo(75, 131), mode="L"),
    "turned jpeg": lambda: file_of(photo(75, 131), exif=exif(6)),
    "cmyk": lambda: file_of(photo(75, 131), mode="CMYK"),
    "png": lambda: file_of(photo(75, 131), "PNG"),
    "grey png": lambda: file_of(photo(75, 131), "PNG", "L"),
    "grey and alpha": lambda: file_of(photo(75, 131), "PNG", "LA"),
    "alpha": lambda: file_of(photo(75, 131), "PNG", "RGBA"),
    "palette": lambda: file_of(photo(75, 131), "PNG", "P"),
    "webp": lambda: file_of(photo(75, 131), "WEBP"),
    "tiff": lambda: file_of(photo(75, 131), "TIFF"),
}  # fmt: skip


class EncodingSuite:
    """Tests of one encoding, which subclasses name together with its reference."""

    encoding = None

    def expected(self, rgb):
        """Return the exact pixels that decoding must give."""
        return rgb

    @pytest.fixture(autouse=True)
    def workdir(self, tmp_path):
        self.workdir = tmp_path

    def stored(self, source, limit=None):
        return self.encoding.encode(source, limit, self.workdir)

    def restored(self, stored):
        return self.encoding.decode(stored.data, stored.shape)

    @pytest.mark.parametrize("kind", FILES)
    def test_files_round_trip(self, kind):
        source = FILES[kind]()
        stored = self.stored(source)
        restored = self.restored(stored)
        assert stored.shape[:2] == (75, 131)
        assert restored.shape == (75, 131, 3)
        assert restored.dtype == np.uint8
        self.assert_equal(restored, decode(source))

    @pytest.mark.parametrize("size", ODD_SIZES)
    def test_pixels_of_odd_sizes_round_trip(self, size):
        stored = self.stored(photo(*size))
        assert stored.shape == (*size, 3)
        self.assert_equal(self.restored(stored), photo(*size))

    @pytest.mark.parametrize("size", ODD_SIZES)
    def test_grey_pixels_decode_to_equal_channels(self, size):
        grey = photo(*size)[:, :, 0]
        restored = self.restored(self.stored(grey))
        assert (restored == restored[:, :, :1]).all()
        self.assert_equal(restored, np.repeat(grey[:, :, None], 3, axis=2))

    def assert_equal(self, restored, source):
        np.testing.assert_array_equal(restored, self.expected(source))

    @pytest.mark.parametrize("kind", FILES)
    def test_equal_sources_give_equal_bytes(self, kind):
        source, threads = FILES[kind](), cv2.getNumThreads()
        first = self.stored(source)
        try:
            cv2.setNumThreads(1)
            second = self.stored(bytes(source))
        finally:
            cv2.setNumThreads(threads)
        assert bytes(first.data) == bytes(second.data)
        assert (first.shape, first.grid) == (second.shape, second.grid)
        np.testing.assert_array_equal(first.tiles, second.tiles)

    def test_another_process_encodes_to_equal_bytes(self):
        source = self.workdir / "source"
        source.write_bytes(FILES["jpeg"]())
        program = (
            "import sys, pathlib, zlib\n"
            "from fastload.images.encodings import encoding_named\n"
            "path = pathlib.Path(sys.argv[2])\n"
            "stored = encoding_named(sys.argv[1]).encode(path.read_bytes(), None, path.parent)\n"
            "print(zlib.crc32(stored.data), stored.grid, stored.tiles.tolist())\n"
        )
        run = [sys.executable, "-c", program, self.encoding.name, str(source)]
        digests = {subprocess.run(run, stdout=subprocess.PIPE, check=True).stdout for _ in range(2)}
        assert len(digests) == 1

    @pytest.mark.parametrize("kind", FILES)
    def test_tiles_are_those_of_the_stored_file(self, kind):
        stored = self.stored(FILES[kind]())
        assert stored.tiles.dtype == np.uint16
        if stored.grid == (0, 0, 0, 0):
            assert stored.tiles.size == 0
        else:
            index = index_tiles(stored.data)
            assert index.grid == stored.grid
            np.testing.assert_array_equal(index.lengths, stored.tiles)

    def test_read_only_memory_is_decoded(self):
        stored = self.stored(FILES["jpeg"]())
        view = np.frombuffer(b"before" + bytes(stored.data), np.uint8)[6:]
        np.testing.assert_array_equal(self.encoding.decode(view, stored.shape), self.restored(stored))

    def test_pixels_that_are_not_contiguous_are_encoded(self):
        pixels = photo(80, 90)[60:10:-1, 3:62:2, ::-1]
        self.assert_equal(self.restored(self.stored(pixels)), pixels.copy())

    @pytest.mark.parametrize("kind", ["jpeg", "progressive", "png"])
    def test_truncated_files_are_refused(self, kind):
        source = FILES[kind]()
        for length in (0, 1, 10, len(source) // 2, len(source) - 1):
            with pytest.raises(DecodeError):
                self.stored(source[:length])

    @pytest.mark.parametrize(
        "pixels",
        [np.zeros((4, 4, 3)), np.zeros((3, 32, 32), np.uint8), np.zeros((0, 4, 3), np.uint8)],
        ids=["double precision", "channels first", "empty"],
    )
    def test_arrays_that_are_no_images_are_refused(self, pixels):
        with pytest.raises(SourceError, match=r"pixels must be \(height, width, channels\)"):
            self.stored(pixels)

    @pytest.mark.parametrize(
        "pixels",
        [np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.uint16), np.zeros((4, 4), np.float32)],
        ids=lambda pixels: f"{pixels.dtype} {pixels.shape}",
    )
    def test_images_of_another_type_are_refused(self, pixels):
        with pytest.raises(DecodeError, match="the image must be uint8 in 3 channels, as the first one"):
            self.stored(pixels)

    def test_files_of_another_type_are_refused_with_the_option_that_converts_them(self):
        source = cv2.imencode(".png", photo(75, 131).astype(np.uint16) * 257)[1].tobytes()
        with pytest.raises(DecodeError, match="got uint16 in 3 channels: pack with --convert uint8"):
            self.stored(source)

    def test_a_progressive_jpeg_that_cannot_be_decoded_is_refused(self):
        damaged = bytearray(FILES["progressive"]())
        later_table = damaged.index(b"\xff\xc4", parse_jpeg(bytes(damaged)).scan_offset)
        damaged[later_table + 5] = 255  # an impossible number of codes of one bit
        with pytest.raises(DecodeError):
            self.stored(bytes(damaged))

    def test_record_kept_although_unreadable_does_not_decode(self):
        with pytest.raises(DecodeError, match="packed although it is unreadable"):
            self.encoding.decode(b"whatever", (0, 0, 0))

    def test_names_and_pickles_make_an_equal_encoding(self):
        assert encoding_named(self.encoding.name) == self.encoding
        assert pickle.loads(pickle.dumps(self.encoding)) == self.encoding

    def test_temporary_folder_is_left_empty(self):
        self.stored(FILES["jpeg"]())
        assert not list(self.workdir.iterdir())


class KeepsFiles(EncodingSuite):
    """Tests of encodings that keep files."""

    def test_a_limit_is_refused(self):
        with pytest.raises(OptionError, match=f"{self.encoding.name} encoding stores every pixel"):
            self.stored(photo(8, 8), SizeLimit(max_side=4))

    @pytest.mark.parametrize("kind", ["png", "palette", "webp", "tiff"])
    def test_other_files_stay_byte_for_byte(self, kind):
        source = FILES[kind]()
        assert self.stored(source).data == source
        assert self.stored(source).shape == read_header(source).shape

    @pytest.mark.parametrize("channels", [1, 3])
    def test_pixels_are_stored_as_png(self, channels):
        pixels = photo(20, 30)
        stored = self.stored(pixels if channels == 3 else pixels[:, :, 0])
        assert read_header(stored.data).format == "png"
        assert stored.shape == read_header(stored.data).shape == (20, 30, channels)


class ObeysLimits(EncodingSuite):
    """Tests of encodings that can shrink images."""

    @pytest.mark.parametrize(
        ("limit", "size"),
        [
            (SizeLimit(max_side=60), (34, 60)),
            (SizeLimit(shorter_side=50), (50, 87)),
            (SizeLimit(size=(40, 40)), (40, 40)),
            (SizeLimit(max_side=131), (75, 131)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("kind", ["jpeg", "grey jpeg", "alpha"])
    def test_limit_is_applied(self, kind, limit, size):
        source = FILES[kind]()
        stored = self.stored(source, limit)
        assert stored.shape[:2] == size
        self.assert_equal(self.restored(stored), resize(decode(source), *size))

    def test_limit_is_applied_to_pixels(self):
        stored = self.stored(photo(75, 131), SizeLimit(max_side=60))
        self.assert_equal(self.restored(stored), resize(photo(75, 131), 34, 60))


class TestKeep(KeepsFiles):
    encoding = Keep()

    @pytest.mark.parametrize("kind", FILES)
    def test_files_stay_byte_for_byte(self, kind):
        source = FILES[kind]()
        stored = self.stored(source)
        assert stored.data == source
        assert stored.tiles.size == 0


class TestTiled(KeepsFiles):
    encoding = Tiled()

    @pytest.fixture(autouse=True)
    def jpegtran(self, require_tool):
        require_tool("jpegtran")

    @pytest.mark.parametrize("kind", ["jpeg", "jpeg 4:4:4", "progressive", "grey jpeg", "cmyk"])
    def test_jpegs_get_tiles(self, kind):
        stored = self.stored(FILES[kind]())
        assert stored.tiles.size > 0
        assert stored.shape == read_header(stored.data).shape

    def test_orientation_is_kept(self):
        assert read_header(self.stored(FILES["turned jpeg"]()).data).orientation == 6

    def test_damaged_jpeg_is_kept_without_tiles(self):
        source = FILES["jpeg"]()
        start = parse_jpeg(source).scan_offset
        damaged = source[: start + 300] + bytes(40) + source[start + 500 :]
        stored = self.stored(damaged)
        assert stored.data == damaged
        assert stored.tiles.size == 0


class TestJpeg(ObeysLimits):
    encoding = Jpeg()

    def assert_equal(self, restored, source):
        """Encode with PIL, whose libjpeg-turbo has the same losses."""
        is_grey = (source == source[:, :, :1]).all()
        data = file_of(source[:, :, 0] if is_grey else source, quality=90, subsampling=2)
        np.testing.assert_array_equal(restored, decode(data))

    @pytest.mark.parametrize("kind", FILES)
    def test_every_file_gets_tiles(self, kind):
        assert self.stored(FILES[kind]()).tiles.size > 0

    @pytest.mark.parametrize("size", ODD_SIZES)
    def test_every_size_gets_tiles(self, size):
        stored = self.stored(photo(*size))
        assert stored.tiles.size > 0
        assert index_tiles(stored.data).grid == stored.grid

    @pytest.mark.parametrize("kind", ["grey jpeg", "grey png", "grey and alpha"])
    def test_grey_stays_grey(self, kind):
        stored = self.stored(FILES[kind]())
        assert stored.shape == (75, 131, 1) == read_header(stored.data).shape

    def test_orientation_is_kept(self):
        stored = self.stored(FILES["turned jpeg"]())
        with Image.open(io.BytesIO(stored.data)) as image:
            assert image.getexif()[0x0112] == 6
        stored = self.stored(file_of(photo(20, 30), "PNG", exif=exif(8)))
        assert read_header(stored.data).orientation == 8

    def test_colour_has_half_the_resolution(self):
        assert self.stored(photo(64, 128)).grid[2] == 16

    def test_quality_is_applied(self):
        pixels = photo(75, 131)
        fine = Jpeg(quality=100).encode(pixels, None, self.workdir)
        coarse = Jpeg(quality=20).encode(pixels, None, self.workdir)
        errors = [np.abs(self.restored(each).astype(int) - pixels).mean() for each in (fine, coarse)]
        assert errors[0] < errors[1]
        assert len(coarse.data) < len(fine.data) / 4

    def test_image_too_large_for_jpeg_is_refused(self):
        with pytest.raises(OptionError, match="65501"):
            self.stored(np.zeros((1, 65501), np.uint8))


class TestYuv420(ObeysLimits):
    encoding = Yuv420()

    def expected(self, rgb):
        return nv12_to_rgb(rgb_to_nv12(rgb), rgb.shape[:2], Box(0, 0, *rgb.shape[:2]))

    @pytest.mark.parametrize("size", ODD_SIZES)
    def test_bytes_are_planes(self, size):
        assert len(self.stored(photo(*size)).data) == nv12_size(*size)


class TestRaw(ObeysLimits):
    encoding = Raw()

    def test_decoded_pixels_are_a_view_of_the_stored_bytes(self):
        data = np.frombuffer(bytes(range(24)), np.uint8)
        assert np.shares_memory(self.encoding.decode(data, (2, 4, 3)), data)

    def test_data_of_another_size_is_refused(self):
        with pytest.raises(DecodeError, match="must have 24 bytes, got 23"):
            self.encoding.decode(bytes(23), (2, 4, 3))


def test_each_encoding_has_its_help_and_a_row_on_the_pages_of_encodings():
    assert tuple(ENCODINGS) == ENCODING_NAMES
    for name in ENCODINGS:
        for page in (ROOT / "docs" / "format.md", ROOT / "docs" / "cli.md"):
            assert f"\n| `{name}` | " in page.read_text(), f"{page.name} has no row of {name}"


def test_an_unknown_encoding_is_refused():
    with pytest.raises(OptionError, match="keep, tiled, jpeg, yuv420, blosc, raw, got 'webp'"):
        encoding_named("webp")
