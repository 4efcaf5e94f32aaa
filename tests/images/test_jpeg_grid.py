"""The grid of tiles of a JPEG: its restart interval, its index, and decoding of single tiles."""

import io
import struct

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload.errors import DecodeError
from fastload.images.decode import decode
from fastload.images.jpeg import (
    TileIndex,
    choose_interval,
    index_tiles,
    parse_jpeg,
    with_orientation,
)
from tests.images.samples import ODD_SIZES, exif, file_of, photo, rewritten, sizes

SAMPLINGS = {
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}
MCUS = {  # (height, width) in pixels
    "420": (16, 16), "422": (8, 16), "440": (16, 8), "444": (8, 8), "411": (8, 32), "grey": (8, 8),
}  # fmt: skip


def tiled_file(pixels: np.ndarray, kind: str, interval: int | None = None, quality=90) -> bytes:
    """Encode a JPEG with a subsampling, or grey, with restart markers that form tiles."""
    if interval is None:
        interval = choose_interval(pixels.shape[1], MCUS[kind][1])
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    if kind == "grey":
        pixels = pixels[:, :, 0]
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[kind]]
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def tiles_of(data: bytes, index: TileIndex) -> list[bytes]:
    lengths = index.lengths.astype(int)
    starts = index.grid[1] + np.cumsum(lengths + 2) - lengths - 2
    return [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def joined(tiles: list[bytes]) -> bytes:
    markers = [bytes((0xFF, 0xD0 + number % 8)) for number in range(len(tiles) - 1)]
    return b"".join(part for pair in zip(tiles, [*markers, b""], strict=True) for part in pair)


def decode_tiles(data: bytes, index: TileIndex, rows: range, columns: range) -> np.ndarray:
    """Decode a rectangle of tiles as a separate JPEG: same tables, another size."""
    sof, scan, tile_height, tile_width = index.grid
    layout = parse_jpeg(data)
    across = -(-layout.width // tile_width)
    height = min(layout.height - rows.start * tile_height, len(rows) * tile_height)
    width = min(layout.width - columns.start * tile_width, len(columns) * tile_width)
    header = bytearray(data[:scan])
    header[sof + 5 : sof + 9] = struct.pack(">HH", height, width)
    tiles = tiles_of(data, index)
    chosen = [tiles[row * across + column] for row in rows for column in columns]
    return decode(bytes(header) + joined(chosen) + b"\xff\xd9")


def assert_region_is_that_of_the_whole(data: bytes, rows: range, columns: range) -> None:
    index = index_tiles(data)
    full, part = decode(data), decode_tiles(data, index, rows, columns)
    top, left = rows.start * index.grid[2], columns.start * index.grid[3]
    bottom, right = top + part.shape[0], left + part.shape[1]
    # Chroma at a tile's border is interpolated with its neighbour's: one pixel of margin, but not at the
    # image's own borders.
    margin_top, margin_left = int(top > 0), int(left > 0)
    margin_bottom, margin_right = int(bottom < full.shape[0]), int(right < full.shape[1])
    inner = np.s_[margin_top : part.shape[0] - margin_bottom, margin_left : part.shape[1] - margin_right]
    np.testing.assert_array_equal(part[inner], full[top:bottom, left:right][inner])


@given(st.integers(1, 70_000), st.sampled_from([8, 16, 32]))
def test_interval_is_the_divisor_nearest_4_or_the_row(width, mcu_width):
    mcus = -(-width // mcu_width)
    interval = choose_interval(width, mcu_width)
    divisors = [count for count in range(2, 9) if mcus % count == 0]
    assert mcus % interval == 0
    if divisors:
        assert interval in divisors
        assert abs(interval - 4) == min(abs(count - 4) for count in divisors)
    else:
        assert interval == mcus


@pytest.mark.parametrize(
    ("mcus", "interval"), [(1, 1), (2, 2), (11, 11), (12, 4), (15, 5), (14, 2), (21, 3), (49, 7)]
)
def test_interval_of_given_rows(mcus, interval):
    assert choose_interval(16 * mcus, 16) == interval
    assert choose_interval(16 * mcus - 15, 16) == interval


@given(sizes(), st.sampled_from(sorted(MCUS)), st.integers(0, 99), st.sampled_from([3, 50, 90, 100]))
@settings(max_examples=60)
@example((1, 5000), "420", 0, 90)
@example((5000, 1), "444", 0, 90)
@example((1, 1), "grey", 0, 90)
def test_tiles_joined_by_markers_in_turn_are_the_scan(size, kind, seed, quality):
    data = tiled_file(photo(*size, seed), kind, quality=quality)
    index, layout = index_tiles(data), parse_jpeg(data)
    mcu_height, mcu_width = MCUS[kind]
    assert index.grid[2] == mcu_height
    assert index.grid[3] == choose_interval(size[1], mcu_width) * mcu_width
    assert index.grid[:2] == (layout.sof_offset, layout.scan_offset)
    assert index.lengths.dtype == np.uint16
    assert len(index.lengths) == -(-size[0] // mcu_height) * -(-size[1] // index.grid[3])
    assert data[index.grid[1] :] == joined(tiles_of(data, index)) + b"\xff\xd9"


@given(st.data(), sizes(), st.sampled_from(sorted(MCUS)))
@settings(max_examples=80)
def test_decoded_tiles_equal_the_crop_of_the_image(data, size, kind):
    image = tiled_file(photo(*size), kind)
    tile_height, tile_width = index_tiles(image).grid[2:]
    down, across = -(-size[0] // tile_height), -(-size[1] // tile_width)
    top, left = data.draw(st.integers(0, down - 1)), data.draw(st.integers(0, across - 1))
    bottom, right = data.draw(st.integers(top, down - 1)), data.draw(st.integers(left, across - 1))
    assert_region_is_that_of_the_whole(image, range(top, bottom + 1), range(left, right + 1))


@pytest.mark.parametrize("size", ODD_SIZES)
@pytest.mark.parametrize("kind", sorted(MCUS))
def test_every_single_tile_equals_the_crop_of_the_image(size, kind):
    image = tiled_file(photo(*size), kind)
    tile_height, tile_width = index_tiles(image).grid[2:]
    for row in range(min(4, -(-size[0] // tile_height))):
        for column in range(min(4, -(-size[1] // tile_width))):
            assert_region_is_that_of_the_whole(image, range(row, row + 1), range(column, column + 1))


def test_index_ignores_bytes_after_the_image():
    data = tiled_file(photo(64, 64), "420")
    index = index_tiles(data + b"\xff\xd0 \xff\xd9 trailing \xff")
    np.testing.assert_array_equal(index.lengths, index_tiles(data).lengths)


@pytest.mark.parametrize("interval", [0, 3, 5, 7, 16, 24, 64])
def test_intervals_that_do_not_divide_the_row_make_no_grid(interval):
    assert index_tiles(tiled_file(photo(64, 128), "420", interval)) is None


def test_interval_of_several_rows_makes_no_grid_even_if_markers_are_missing():
    assert index_tiles(tiled_file(photo(64, 128), "420", 16)[:-2]) is None


@pytest.mark.parametrize("interval", [1, 2, 4, 8])
def test_every_divisor_of_the_row_makes_a_grid(interval):
    index = index_tiles(tiled_file(photo(64, 128), "420", interval))
    assert index.grid[3] == 16 * interval
    assert len(index.lengths) == 4 * 8 // interval


def test_progressive_file_has_no_grid():
    data = file_of(photo(64, 128), progressive=True, restart_marker_blocks=4)
    assert parse_jpeg(data).restart_interval == 4
    assert index_tiles(data) is None


def test_12_bits_have_no_grid():
    data = bytearray(tiled_file(photo(64, 128), "420"))
    frame = parse_jpeg(bytes(data)).sof_offset
    data[frame + 1], data[frame + 4] = 0xC1, 12
    assert index_tiles(bytes(data)) is None


def test_grey_has_tiles_of_single_blocks_with_any_sampling_factors():
    data = bytearray(tiled_file(photo(64, 128), "grey"))
    data[parse_jpeg(bytes(data)).sof_offset + 11] = 0x22
    assert index_tiles(bytes(data)).grid[2:] == (8, 32)
    assert_region_is_that_of_the_whole(bytes(data), range(3, 7), range(1, 4))


def test_arithmetic_coding_has_no_grid(require_tool):
    require_tool("jpegtran")
    data = rewritten(tiled_file(photo(64, 128), "420"), "-arithmetic", "-restart", "4B")
    assert parse_jpeg(data).restart_interval == 4
    assert index_tiles(data) is None


def test_several_sequential_scans_have_no_grid(require_tool, tmp_path):
    require_tool("jpegtran")
    scans = tmp_path / "scans"
    scans.write_text("0;\n1;\n2;\n")
    data = rewritten(tiled_file(photo(64, 128), "444"), "-scans", str(scans), "-restart", "4B")
    assert parse_jpeg(data).is_baseline
    assert index_tiles(data) is None


def test_very_low_quality_has_a_grid_too():
    data = file_of(photo(64, 128), quality=1, restart_marker_blocks=4, subsampling=2)
    assert index_tiles(data).grid[2:] == (16, 64)
    data = file_of(photo(64, 128), qtables=[[300] * 64] * 2, restart_marker_blocks=4, subsampling=2)
    assert_region_is_that_of_the_whole(data, range(1, 3), range(1))


def test_tile_too_long_for_the_index_has_no_grid():
    noise = np.random.default_rng(0).integers(0, 256, (8, 8 * 499, 3), dtype=np.uint8)
    assert index_tiles(tiled_file(noise[:, : 8 * 101], "444", quality=100)) is not None
    assert index_tiles(tiled_file(noise, "444", quality=100)) is None


@pytest.mark.parametrize("change", ["dropped", "out of turn", "padded", "foreign", "extra", "no end"])
def test_wrong_markers_make_no_grid(change):
    data = tiled_file(photo(64, 128), "420")
    index = index_tiles(data)
    marker = index.grid[1] + int(index.lengths[0])
    changed = {
        "dropped": data[:marker] + data[marker + 2 :],
        "out of turn": data[: marker + 1] + b"\xd3" + data[marker + 2 :],
        "padded": data[:marker] + b"\xff" + data[marker:],
        "foreign": data[: marker + 1] + b"\xc4" + data[marker + 2 :],
        "extra": data[:-2] + b"\xff\xd7" + data[-2:],
        "no end": data[:-2],
    }[change]
    assert index_tiles(changed) is None


@given(st.data())
@settings(max_examples=200)
def test_damaged_file_has_a_complete_index_or_none(data):
    full = bytearray(tiled_file(photo(32, 64), "420"))
    for _ in range(data.draw(st.integers(1, 3))):
        full[data.draw(st.integers(2, len(full) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(full)
    try:
        index = index_tiles(damaged)
    except DecodeError:
        return
    if index is not None:
        assert damaged[index.grid[1] :].startswith(joined(tiles_of(damaged, index)) + b"\xff\xd9")


def test_truncated_header_is_refused():
    data = tiled_file(photo(32, 64), "420")
    scan_offset = parse_jpeg(data).scan_offset
    for length in range(scan_offset):
        with pytest.raises(DecodeError):
            parse_jpeg(data[:length])
    assert parse_jpeg(data[:scan_offset]) == parse_jpeg(data)


def test_image_without_height_is_refused():
    data = bytearray(tiled_file(photo(32, 64), "420"))
    sof = parse_jpeg(bytes(data)).sof_offset
    data[sof + 5 : sof + 7] = b"\0\0"
    with pytest.raises(DecodeError, match="height 0"):
        parse_jpeg(bytes(data))


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\xff\xd8\xff\xd9"])
def test_other_formats_are_refused(data):
    with pytest.raises(DecodeError):
        parse_jpeg(data)


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("kind", ["420", "grey"])
def test_orientation_is_added_without_changing_the_image(orientation, kind):
    data = tiled_file(photo(64, 128), kind)
    turned = with_orientation(data, orientation)
    assert parse_jpeg(turned).orientation == orientation
    with Image.open(io.BytesIO(turned)) as image:
        assert image.getexif()[0x0112] == orientation
        assert "jfif" in image.info
    assert turned[:20] == data[:20], "the JFIF segment must stay first"
    np.testing.assert_array_equal(decode(turned), decode(data))
    before, after = index_tiles(data), index_tiles(turned)
    assert tiles_of(turned, after) == tiles_of(data, before)
    applied = cv2.imdecode(np.frombuffer(turned, np.uint8), cv2.IMREAD_COLOR)
    assert applied.shape[:2] == ((128, 64) if orientation >= 5 else (64, 128))


def test_orientation_comes_first_without_jfif():
    data = file_of(photo(16, 16), mode="CMYK")
    assert data[2:4] != b"\xff\xe0"
    assert with_orientation(data, 6)[2:4] == b"\xff\xe1"
    assert parse_jpeg(with_orientation(data, 6)).orientation == 6


def test_upright_files_stay_as_they_are():
    data = file_of(photo(16, 16), exif=exif(1))
    assert with_orientation(data, 1) is data
