"""Choice of what a cache on a disk stores, from values and from measurements."""

from dataclasses import replace

import pytest

from fastload.packing._cache_form import FormReadings, is_decoded_faster, read_form
from fastload.sources.cacheable import CacheableFiles
from fastload.sources.folder import list_folder
from tests.folders import class_folders

GB = 10**9

# A million photos of 600 KB as pixels, more than memory holds; 16 CPUs decode 10,000 a second from tiles.
LARGE = FormReadings(
    room_bytes=1000 * GB,
    samples=1_000_000,
    decoded_bytes=600 * GB,
    encoded_per_s=10_000,
    memory_bytes=64 * GB,
    disk_bytes_per_s=2 * GB,
)


@pytest.mark.parametrize(
    ("changed", "is_decoded"),
    [
        ({}, False),  # the disk feeds 3,333 a second
        ({"disk_bytes_per_s": 7 * GB}, True),
        ({"disk_bytes_per_s": 7 * GB, "room_bytes": 500 * GB}, False),
        ({"memory_bytes": 1500 * GB}, True),
        ({"memory_bytes": 1000 * GB}, False),
        ({"memory_bytes": 1500 * GB, "room_bytes": 500 * GB}, False),
        ({"encoded_per_s": 2_000}, True),  # few CPUs
        ({"samples": 0}, False),
    ],
)
def test_pixels_are_stored_where_they_fit_and_are_fetched_fast_enough(changed, is_decoded):
    assert is_decoded_faster(replace(LARGE, **changed)) == is_decoded


def test_readings_of_a_folder(tmp_path):
    files = list_folder(str(class_folders(tmp_path / "photos", count=12)))[""].files
    source = CacheableFiles(files, files.folder, alike_only=False)
    options = {"has_size": False, "is_tiled": True}
    readings = read_form(source, tmp_path, 10_000.0, GB, **options)
    assert readings.room_bytes == GB // 2
    assert readings.samples == 12
    assert readings.encoded_per_s > 0
    assert readings.disk_bytes_per_s == 0  # memory holds them
    assert read_form(source, tmp_path, 10_000.0, GB, has_size=True, is_tiled=True).room_bytes == GB
    large = read_form(source, tmp_path, 1e15, 10**16, **options)
    assert large.disk_bytes_per_s >= 0
    assert not list(tmp_path.glob("tmp*"))
