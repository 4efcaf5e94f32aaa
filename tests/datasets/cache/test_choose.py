"""Which cache is chosen, for readings of every kind; no clock and no disk is looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.datasets.cache.choose import CacheReadings, choose_cache

GB = 10**9


def readings(**changed):
    """50,000 photos of 110 KB on an NVMe disk, decoded by 8 cores; the model is unknown."""
    usual = {
        "samples": 50_000,
        "sample_bytes": 110e3,
        "decoded_bytes": 550e3,
        "disk_samples_per_s": 20_000.0,
        "memory_bytes_per_s": 5e9,
        "prepare_samples_per_s": 7_000.0,
        "room_bytes": 64 * GB,
        "tmpfs_room_bytes": 16 * GB,
    }
    return CacheReadings(**{**usual, **changed})


def test_a_fast_disk_needs_none_and_the_ratio_is_said():
    choice = choose_cache(readings(disk_samples_per_s=3_100.0, step_samples_per_s=1_000.0))
    assert choice.kind is None
    assert choice.reason == "no cache: your disk feeds 3.1 times what the model takes"
    assert choice.predicted_gain == 1


def test_without_a_model_it_is_compared_with_decoding():
    choice = choose_cache(readings())
    assert choice.reason == "no cache: your disk feeds 2.9 times what this machine decodes"


def test_a_slow_disk_whose_set_fits_is_read_once():
    choice = choose_cache(readings(disk_samples_per_s=500.0))
    assert (choice.kind, choice.form, choice.share) == ("ram", "encoded", 1.0)
    assert choice.predicted_gain == pytest.approx(14, rel=0.01)
    assert "your disk feeds 0.071 times what this machine decodes" in choice.reason


def test_half_of_a_set_is_kept_where_half_fits():
    choice = choose_cache(
        readings(disk_samples_per_s=500.0, room_bytes=int(50_000 * 110e3 / 2), tmpfs_room_bytes=0)
    )
    assert choice.kind == "ram"
    assert choice.share == pytest.approx(0.5)
    assert choice.predicted_gain == pytest.approx(2, rel=0.05)
    assert "50% of the samples" in choice.reason


def test_no_room_no_cache():
    choice = choose_cache(readings(disk_samples_per_s=500.0, room_bytes=0, tmpfs_room_bytes=0))
    assert choice.kind is None
    assert "0% of 5.5 GB fit into the memory left" in choice.reason


def test_a_tmpfs_stands_in_where_memory_cannot_be_shared():
    choice = choose_cache(readings(disk_samples_per_s=500.0, room_bytes=0))
    assert choice.kind == "tmpfs"


def test_what_lies_in_memory_is_left_there():
    assert choose_cache(readings(disk_samples_per_s=1.0, is_in_memory=True)).kind is None


def test_pixels_are_kept_where_decoding_holds_up_the_model():
    choice = choose_cache(
        readings(step_samples_per_s=12_000.0, prepare_decoded_samples_per_s=40_000.0, room_bytes=64 * GB)
    )
    assert (choice.kind, choice.form) == ("ram", "decoded")
    assert "this machine decodes 0.58 times what the model takes" in choice.reason


def test_pixels_are_not_kept_for_a_model_that_is_not_known():
    choice = choose_cache(readings(prepare_decoded_samples_per_s=40_000.0, disk_samples_per_s=500.0))
    assert choice.form == "encoded"


def test_encoded_is_kept_where_pixels_would_not_fit():
    choice = choose_cache(
        readings(
            disk_samples_per_s=500.0,
            step_samples_per_s=12_000.0,
            prepare_decoded_samples_per_s=40_000.0,
            room_bytes=6 * GB,
            tmpfs_room_bytes=0,
        )
    )
    assert (choice.kind, choice.form, choice.share) == ("ram", "encoded", 1.0)


def test_a_small_set_goes_to_the_device():
    choice = choose_cache(
        readings(
            sample_bytes=2_400,
            decoded_bytes=3_072,
            step_samples_per_s=200_000.0,
            prepare_samples_per_s=50_000.0,
            device_room_bytes=8 * GB,
        )
    )
    assert choice.kind == "device"
    assert "all 153.6 MB of pixels fit there" in choice.reason


def test_a_set_too_large_for_the_device_does_not():
    choice = choose_cache(readings(step_samples_per_s=200_000.0, device_room_bytes=8 * GB))
    assert choice.kind != "device"


# What users of other caches reported (YOLOv5 #4008, #309): one that swapped, and one that a disk did not
# need.
def test_a_cache_that_would_have_swapped_takes_what_fits():
    # 2.5 GB of JPEGs, 33 GB of pixels, 16 GB of memory: an epoch took 78 minutes instead of 20.
    choice = choose_cache(
        readings(
            samples=20_000,
            sample_bytes=125e3,
            decoded_bytes=1.65e6,
            disk_samples_per_s=1_600.0,
            prepare_samples_per_s=220.0,
            prepare_decoded_samples_per_s=280.0,
            step_samples_per_s=250.0,
            room_bytes=14 * GB,
        )
    )
    assert choice.kind is None or choice.share * 20_000 * 1.65e6 <= 14 * GB
    assert "your disk" in choice.reason or "decodes" in choice.reason


def test_a_fast_ssd_whose_cache_cost_minutes_gets_none():
    # An epoch fell from 3 minutes to 20 seconds once the cache was off.
    choice = choose_cache(
        readings(
            samples=4_000,
            sample_bytes=150e3,
            disk_samples_per_s=12_000.0,
            prepare_samples_per_s=1_000.0,
            step_samples_per_s=200.0,
            prepare_decoded_samples_per_s=1_250.0,
        )
    )
    assert choice.kind is None
    assert choice.reason == "no cache: your disk feeds 60.0 times what the model takes"


def test_the_hit_ratio_needed_is_that_of_the_design():
    slow = readings(disk_samples_per_s=1_000.0, step_samples_per_s=2_000.0, memory_bytes_per_s=1e18)
    assert slow.hit_ratio_needed == pytest.approx((1 / 1_000 - 1 / 2_000) / (1 / 1_000))
    assert slow.rate("encoded", slow.hit_ratio_needed) == pytest.approx(2_000.0)
    assert readings().hit_ratio_needed == 0


@given(
    st.builds(
        readings,
        disk_samples_per_s=st.floats(1, 1e6),
        prepare_samples_per_s=st.floats(1, 1e6),
        prepare_decoded_samples_per_s=st.none() | st.floats(1, 1e6),
        step_samples_per_s=st.none() | st.floats(1, 1e6),
        room_bytes=st.integers(0, 100 * GB),
        tmpfs_room_bytes=st.integers(0, 100 * GB),
        device_room_bytes=st.none() | st.integers(0, 100 * GB),
    )
)
def test_any_choice_fits_gains_and_says_why(given_readings):
    choice = choose_cache(given_readings)
    assert choice.reason
    if choice.kind is None:
        assert choice.predicted_gain == 1
        return
    assert choice.predicted_gain >= 1.1
    if choice.kind in ("ram", "tmpfs"):
        each = given_readings.sample_bytes if choice.form == "encoded" else given_readings.decoded_bytes
        room = {"ram": given_readings.room_bytes, "tmpfs": given_readings.tmpfs_room_bytes}[choice.kind]
        assert choice.share * given_readings.samples * each <= room * (1 + 1e-9)
    # No encoded cache where the disk feeds enough.
    if choice.form == "encoded" and choice.kind != "device":
        assert given_readings.disk_samples_per_s < given_readings.needed_samples_per_s


def test_disk_that_could_not_be_measured_gets_no_cache():
    choice = choose_cache(readings(disk_samples_per_s=0.0))
    assert choice.kind is None
    assert "could not be measured" in choice.reason
