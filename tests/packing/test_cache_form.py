"""Choice of what a cache on a disk stores, from values and from measurements."""

import pytest

from fastload.packing._cache_form import _disk_bytes_per_s, is_decoded_faster, stores_pixels
from fastload.sources import open_source
from fastload.sources.cacheable import CacheableFiles
from tests.folders import class_folders

GB = 10**9

# A million photos of 600 KB as pixels, more than memory holds; 16 CPUs decode 10,000 a second from tiles.
LARGE = {
    "samples": 1_000_000,
    "decoded_bytes": 600 * GB,
    "room_bytes": 1000 * GB,
    "memory_bytes": 64 * GB,
    "encoded_per_s": 10_000,
    "disk_bytes_per_s": lambda: 2 * GB,
}


@pytest.mark.parametrize(
    ("changed", "is_decoded"),
    [
        ({}, False),  # the disk feeds 3,333 a second
        ({"disk_bytes_per_s": lambda: 7 * GB}, True),
        ({"disk_bytes_per_s": lambda: 7 * GB, "room_bytes": 500 * GB}, False),
        ({"memory_bytes": 1500 * GB}, True),
        ({"memory_bytes": 1000 * GB}, False),
        ({"memory_bytes": 1500 * GB, "room_bytes": 500 * GB}, False),
        ({"encoded_per_s": 2_000}, True),  # few CPUs
        ({"samples": 0}, False),
    ],
)
def test_pixels_are_stored_where_they_fit_and_are_fetched_fast_enough(changed, is_decoded):
    assert is_decoded_faster(**{**LARGE, **changed}) == is_decoded


@pytest.mark.parametrize(
    ("size_bytes", "room_bytes", "has_size", "is_decoded"),
    [(10_000.0, 20_000, False, True), (10_000.0, 19_000, False, False), (10_000.0, 19_000, True, True)],
)
def test_pixels_of_a_folder_take_half_of_the_room_unless_it_is_stated(
    tmp_path, size_bytes, room_bytes, has_size, is_decoded
):
    files = open_source(str(class_folders(tmp_path / "photos", count=12)))[""].files
    source = CacheableFiles(files, files.folder, alike_only=False)
    found = stores_pixels(source, tmp_path, size_bytes, room_bytes, has_size=has_size, is_tiled=True)
    assert found == is_decoded


def test_measuring_the_disk_leaves_no_file(tmp_path):
    assert _disk_bytes_per_s(tmp_path, 100_000) >= 0
    assert not list(tmp_path.iterdir())
