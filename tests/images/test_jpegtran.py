"""Lossless tiling with the real jpegtran: bit-equal, or refused."""

import io
import os
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload.errors import DecodeError, ToolMissingError
from fastload.images.decode import decode
from fastload.images.jpeg import choose_interval, index_tiles, parse_jpeg
from fastload.images.jpegtran import find_jpegtran, require_jpegtran, tile_losslessly
from tests.images.samples import exif, file_of, photo, pil_rgb, rewritten, sizes


@pytest.fixture(autouse=True)
def jpegtran(require_tool):
    find_jpegtran.cache_clear()
    yield require_tool("jpegtran")
    find_jpegtran.cache_clear()


def assert_tiled_without_loss(data, tiled):
    np.testing.assert_array_equal(decode(tiled), decode(data))
    np.testing.assert_array_equal(pil_rgb(tiled), pil_rgb(data))
    source, layout = parse_jpeg(data), parse_jpeg(tiled)
    assert layout.channels == source.channels
    assert layout.orientation == source.orientation
    assert layout.restart_interval == choose_interval(layout.width, layout.mcu_width)
    assert index_tiles(tiled) is not None


@given(
    sizes(),
    st.sampled_from(["L", "RGB"]),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    st.integers(1, 100),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example((1, 1), "RGB", 2, False, 90)
@example((1, 5000), "RGB", 2, True, 90)
@example((5000, 1), "L", 0, False, 90)
def test_pixels_stay_bit_equal(tmp_path, size, mode, subsampling, is_progressive, quality):
    data = file_of(
        photo(*size),
        mode=mode,
        subsampling=subsampling,
        progressive=is_progressive,
        quality=quality,
    )
    assert_tiled_without_loss(data, tile_losslessly(data, tmp_path))


def test_rgb_without_a_colour_transform_stays_equal(tmp_path):
    data = file_of(photo(40, 70), keep_rgb=True)
    assert_tiled_without_loss(data, tile_losslessly(data, tmp_path))


def test_cmyk_stays_equal(tmp_path):
    data = file_of(photo(40, 70), mode="CMYK")
    assert_tiled_without_loss(data, tile_losslessly(data, tmp_path))


def test_arithmetic_coding_becomes_equal_tiles_or_is_kept(tmp_path):
    data = rewritten(file_of(photo(40, 70)), "-arithmetic")
    tiled = tile_losslessly(data, tmp_path)
    if tiled is not None:
        assert_tiled_without_loss(data, tiled)


def test_bytes_after_the_image_are_dropped(tmp_path):
    data = file_of(photo(40, 70))
    assert tile_losslessly(data + b"\xff\xd9trailing", tmp_path) == tile_losslessly(data, tmp_path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_kept(tmp_path, orientation):
    data = file_of(photo(40, 70), exif=exif(orientation))
    assert_tiled_without_loss(data, tile_losslessly(data, tmp_path))


def test_profiles_and_comments_are_dropped(tmp_path):
    data = file_of(photo(40, 70), icc_profile=bytes(1000), comment="a comment")
    with Image.open(io.BytesIO(tile_losslessly(data, tmp_path))) as image:
        assert not {"icc_profile", "comment"} & image.info.keys()


def test_damaged_image_is_kept(tmp_path):
    data = file_of(photo(64, 64))
    start = parse_jpeg(data).scan_offset
    damaged = data[: start + 300] + bytes(40) + data[start + 500 :]
    assert tile_losslessly(damaged, tmp_path) is None


def test_truncated_image_is_kept(tmp_path):
    data = file_of(photo(64, 64))
    assert tile_losslessly(data[: len(data) // 2], tmp_path) is None


def test_12_bit_image_is_kept(tmp_path):
    data = bytearray(file_of(photo(64, 64)))
    frame = parse_jpeg(bytes(data)).sof_offset
    data[frame + 1], data[frame + 4] = 0xC1, 12
    assert parse_jpeg(bytes(data)).bit_depth == 12
    assert tile_losslessly(bytes(data), tmp_path) is None


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(DecodeError):
        tile_losslessly(file_of(photo(8, 8), "PNG"), tmp_path)


def test_equal_files_give_equal_bytes(tmp_path):
    data = file_of(photo(64, 64))
    assert tile_losslessly(data, tmp_path) == tile_losslessly(data, tmp_path)


def test_nothing_is_left_in_the_folder(tmp_path):
    tile_losslessly(file_of(photo(64, 64)), tmp_path)
    tile_losslessly(file_of(photo(64, 64))[:900], tmp_path)
    assert not list(tmp_path.iterdir())


def install(folder, script, monkeypatch):
    """Put a script named jpegtran first on the PATH."""
    folder.mkdir()
    program = folder / "jpegtran"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_error_of_a_missing_jpegtran_names_its_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_jpegtran() is None
    with pytest.raises(ToolMissingError, match=r"libjpeg-turbo-progs.*jpeg-turbo.*conda"):
        tile_losslessly(file_of(photo(8, 8)), tmp_path)


def test_a_jpegtran_is_found(jpegtran):
    assert require_jpegtran() == find_jpegtran() == shutil.which("jpegtran")


@pytest.mark.parametrize("script", ["cat", "exit 1", "exec {} -progressive"])
def test_jpegtran_that_makes_no_tiles_is_not_used(script, jpegtran, tmp_path, monkeypatch):
    install(tmp_path / "bin", script.format(jpegtran), monkeypatch)
    assert find_jpegtran() is None


@pytest.mark.parametrize("option", ["-grayscale", "-flip horizontal"])
def test_rewrite_with_other_pixels_is_rejected(option, jpegtran, tmp_path, monkeypatch):
    install(tmp_path / "bin", f'exec {jpegtran} {option} "$@"', monkeypatch)
    assert find_jpegtran() is not None
    assert tile_losslessly(file_of(photo(64, 64)), tmp_path) is None


def test_colour_image_of_greys_stays_in_colour(jpegtran, tmp_path, monkeypatch):
    install(tmp_path / "bin", f'exec {jpegtran} -grayscale "$@"', monkeypatch)
    data = file_of(np.full((64, 64, 3), 128, np.uint8))
    grey = rewritten(data, "-grayscale")
    np.testing.assert_array_equal(decode(grey), decode(data))
    assert tile_losslessly(data, tmp_path) is None
