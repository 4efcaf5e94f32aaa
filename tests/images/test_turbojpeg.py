"""Regions of plain JPEG files from the TurboJPEG library, bit-equal to decoding all and cropping."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.contracts import Box
from fastload.errors import DecodeError
from fastload.images import region
from fastload.images.decode import decode
from fastload.images.region import crop, decode_part, decode_region, find_turbojpeg
from tests import tools
from tests.images.samples import exif, file_of, photo, rewritten, sizes

SAMPLINGS = {
    name: (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{name}"))
    for name in ("411", "420", "422", "440", "444")
}
BOX = Box(20, 30, 25, 33)


@pytest.fixture(autouse=True)
def _needs_the_library():
    if find_turbojpeg() is None:
        tools.skip("needs TurboJPEG 3 (the wheel turbojpeg, which has no build for Python 3.14)")


def jpeg_of(pixels: np.ndarray, *options: int) -> bytes:
    return cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)[1].tobytes()


def cropped(file: bytes, box: Box = BOX, size: tuple[int, int] | None = None) -> np.ndarray | None:
    """The region of the decoded image; None if it cannot be decoded, or has another size."""
    try:
        pixels = decode(file)
        return crop(pixels, size or pixels.shape[:2], box)
    except DecodeError:
        return None


def boxes(draw, height: int, width: int) -> Box:
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return Box(top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))


@given(
    st.data(),
    sizes(),
    st.sampled_from([*SAMPLINGS, "grey"]),
    st.sampled_from([5, 90, 100]),
    st.integers(0, 3),
)
def test_any_region_of_any_sampling_equals_the_crop(data, size, sampling, quality, interval):
    pixels = photo(*size, seed=size[0], noise=60)
    options = (cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, interval)
    if sampling == "grey":
        file = cv2.imencode(".jpg", pixels[:, :, 0], options)[1].tobytes()
    else:
        file = jpeg_of(pixels, *options, *SAMPLINGS[sampling])
    for _ in range(6):
        box = boxes(data.draw, *size)
        part = decode_part(file, size, box)
        np.testing.assert_array_equal(part, cropped(file, box))


@pytest.mark.parametrize("sampling", ["420", "422"])
def test_single_column_at_the_right_edge_equals_the_crop(sampling):
    file = jpeg_of(photo(17, 18, noise=60), *SAMPLINGS[sampling])
    for top in range(16):
        box = Box(top, 17, 2 - top % 2, 1)
        np.testing.assert_array_equal(decode_part(file, (17, 18), box), cropped(file, box))


def test_rgb_and_files_with_exif_are_decoded_in_part_too():
    for options in ({"keep_rgb": True}, {"exif": exif(6)}):
        file = file_of(photo(90, 120), **options)
        np.testing.assert_array_equal(
            decode_part(np.frombuffer(file, np.uint8), (90, 120), BOX), cropped(file)
        )


def test_other_files_are_left_to_opencv():
    pixels = photo(90, 120)
    for file in (
        file_of(pixels, mode="CMYK"),
        file_of(pixels, progressive=True),
        file_of(pixels, "PNG"),
    ):
        assert decode_part(file, (90, 120), BOX) is None
    assert decode_part(jpeg_of(pixels), (90, 119), BOX) is None


@given(st.data())
def test_damaged_file_gives_what_opencv_gives(data):
    file = bytearray(jpeg_of(photo(90, 120), *SAMPLINGS[data.draw(st.sampled_from([*SAMPLINGS]))]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(2, len(file) - 2))
        stop = data.draw(st.integers(start, min(len(file), start + 30)))
        file[start:stop] = data.draw(st.binary(max_size=4) | st.sampled_from([b"\xff\xc4", b"\xff\xd9"]))
    damaged = bytes(file)
    expected = cropped(damaged, BOX, (90, 120))
    if expected is None:
        with pytest.raises(DecodeError):
            decode_region(damaged, (90, 120), None, BOX)
    else:
        np.testing.assert_array_equal(decode_region(damaged, (90, 120), None, BOX), expected)


def test_truncated_file_fails_even_if_the_region_is_complete():
    file = jpeg_of(photo(200, 120, noise=60))[:-300]
    with pytest.raises(DecodeError, match="end-of-image"):
        decode_region(file, (200, 120), None, BOX)


def test_file_in_several_scans_equals_the_crop(require_tool, tmp_path):
    require_tool("jpegtran")
    scans = tmp_path / "scans"
    scans.write_text("0; 1; 2;")
    file = rewritten(jpeg_of(photo(90, 120)), "-scans", str(scans))
    assert file.count(b"\xff\xda") == 3
    np.testing.assert_array_equal(decode_part(file, (90, 120), BOX), cropped(file))


def test_file_without_tables_does_not_get_those_of_the_image_before():
    file = jpeg_of(photo(90, 120))
    assert decode_part(file, (90, 120), BOX) is not None
    start = file.index(b"\xff\xdb")
    assert decode_part(file[:start] + file[file.index(b"\xff\xc0") :], (90, 120), BOX) is None
    assert decode_part(file[:300], (90, 120), BOX) is None
    assert decode_part(file, (90, 120), BOX) is not None


def test_reduced_region_and_whole_image_are_decoded_by_opencv(monkeypatch):
    monkeypatch.setattr("fastload.images.region.decode_part", lambda *_: pytest.fail("was called"))
    file = jpeg_of(photo(90, 120))
    whole = Box(0, 0, 90, 120)
    np.testing.assert_array_equal(decode_region(file, (90, 120), None, whole), decode(file))
    reduced = decode_region(file, (90, 120), None, BOX, 2)
    np.testing.assert_array_equal(reduced, crop(decode(file, 2), (90, 120), BOX, 2))


def regions(seed: int) -> bool:
    file = jpeg_of(photo(90, 120, seed))
    expected = cropped(file)
    return all(np.array_equal(decode_part(file, (90, 120), BOX), expected) for _ in range(30))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_threads_and_forked_processes_decode_alike():
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(regions, range(8)))
    with get_context("fork").Pool(1) as processes:
        found += processes.map(regions, range(2))
    assert all(found)


def test_library_that_decodes_otherwise_is_not_used(monkeypatch):
    monkeypatch.setattr(region, "decode", lambda file: 255 - decode(file))
    assert find_turbojpeg.__wrapped__() is None


def test_without_a_library_images_are_decoded_whole(monkeypatch):
    other = ctypes.CDLL("libc.so.6")  # a library without its functions, in place of each that exists
    monkeypatch.setattr(region.ctypes, "CDLL", lambda path: other)
    monkeypatch.setattr(region, "find_turbojpeg", find_turbojpeg.__wrapped__)
    file = jpeg_of(photo(90, 120))
    assert decode_part(file, (90, 120), BOX) is None
    np.testing.assert_array_equal(decode_region(file, (90, 120), None, BOX), cropped(file))
