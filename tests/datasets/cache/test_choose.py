"""The choice of a cache follows from the readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.datasets.cache.choosing import CacheReadings, choose_cache

GB = 10**9


def readings(**changed):
    """50,000 photos of 110 KB on an NVMe disk, decoded by 8 cores; the model is unknown."""
    usual = {
        "samples": 50_000,
        "sample_bytes": 110e3,
        "decoded_bytes": 550e3,
        "disk_samples_per_s": 20_000.0,
        "prepare_samples_per_s": 7_000.0,
        "room_bytes": 64 * GB,
    }
    return CacheReadings(**{**usual, **changed})


def test_fast_disk_needs_no_cache_and_the_reason_names_the_ratio():
    choice = choose_cache(readings(disk_samples_per_s=3_100.0, step_samples_per_s=1_000.0))
    assert choice.kind is None
    assert choice.reason == "no cache: your disk reads samples 3.1 times as fast as the model uses them"
    assert choice.predicted_gain == 1


def test_without_a_model_the_disk_is_compared_with_decoding():
    choice = choose_cache(readings())
    assert choice.reason == "no cache: your disk reads samples 2.9 times as fast as this machine decodes them"


def test_slow_disk_is_cached_completely_if_the_set_fits():
    choice = choose_cache(readings(disk_samples_per_s=500.0))
    assert (choice.kind, choice.form, choice.share) == ("ram", "encoded", 1.0)
    assert choice.predicted_gain == pytest.approx(14, rel=0.01)
    assert "your disk reads samples 0.071 times as fast as this machine decodes them" in choice.reason


def test_half_of_a_set_is_cached_if_half_fits():
    choice = choose_cache(readings(disk_samples_per_s=500.0, room_bytes=int(50_000 * 110e3 / 2)))
    assert choice.kind == "ram"
    assert choice.share == pytest.approx(0.5)
    assert choice.predicted_gain == pytest.approx(2, rel=0.05)
    assert "50% of the samples" in choice.reason


def test_no_room_no_cache():
    choice = choose_cache(readings(disk_samples_per_s=500.0, room_bytes=0))
    assert choice.kind is None
    assert "0% of 5.5 GB fit into the memory left" in choice.reason


def test_tmpfs_is_used_if_a_folder_is_named():
    choice = choose_cache(readings(disk_samples_per_s=500.0, has_folder=True))
    assert choice.kind == "tmpfs"


def test_dataset_in_memory_needs_no_cache():
    assert choose_cache(readings(disk_samples_per_s=1.0, is_in_memory=True)).kind is None


def test_pixels_are_cached_if_decoding_is_the_bottleneck():
    choice = choose_cache(
        readings(step_samples_per_s=12_000.0, prepare_decoded_samples_per_s=40_000.0, room_bytes=64 * GB)
    )
    assert (choice.kind, choice.form) == ("ram", "decoded")
    assert "this machine decodes samples 0.58 times as fast as the model uses them" in choice.reason


def test_pixels_are_not_cached_for_an_unknown_model():
    choice = choose_cache(readings(prepare_decoded_samples_per_s=40_000.0, disk_samples_per_s=500.0))
    assert choice.form == "encoded"


def test_encoded_bytes_are_cached_if_pixels_do_not_fit():
    choice = choose_cache(
        readings(
            disk_samples_per_s=500.0,
            step_samples_per_s=12_000.0,
            prepare_decoded_samples_per_s=40_000.0,
            room_bytes=6 * GB,
        )
    )
    assert (choice.kind, choice.form, choice.share) == ("ram", "encoded", 1.0)


def test_small_set_goes_to_the_device():
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


def test_set_too_large_for_the_device_does_not():
    choice = choose_cache(readings(step_samples_per_s=200_000.0, device_room_bytes=8 * GB))
    assert choice.kind != "device"


# Reported by users of other caches (YOLOv5 #4008, #309): one swapped, one was slower than its disk.
def test_cache_that_would_swap_takes_what_fits():
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


def test_fast_ssd_gets_no_cache():
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
    assert choice.reason == "no cache: your disk reads samples 60.0 times as fast as the model uses them"


def test_hit_ratio_needed_lets_the_disk_keep_up():
    slow = readings(disk_samples_per_s=1_000.0, step_samples_per_s=2_000.0)
    assert slow.hit_ratio_needed == pytest.approx((1 / 1_000 - 1 / 2_000) / (1 / 1_000))
    assert slow.rate("encoded", slow.hit_ratio_needed) == pytest.approx(2_000.0)
    assert readings().hit_ratio_needed == 0


@pytest.mark.parametrize(("gain", "kind"), [(1.04, None), (1.06, None), (1.14, "ram"), (1.16, "ram")])
def test_gain_of_at_least_a_tenth_is_needed(gain, kind):
    choice = choose_cache(readings(disk_samples_per_s=500.0, prepare_samples_per_s=500.0 * gain))
    assert choice.kind == kind


@pytest.mark.parametrize(("gain", "form"), [(1.04, "encoded"), (1.06, "encoded"), (1.14, "decoded")])
def test_pixels_must_gain_a_tenth_more_than_encoded_bytes(gain, form):
    choice = choose_cache(
        readings(
            disk_samples_per_s=500.0,
            prepare_samples_per_s=1_000.0,
            prepare_decoded_samples_per_s=1_000.0 * gain,
            step_samples_per_s=2_000.0,
        )
    )
    assert (choice.kind, choice.form) == ("ram", form)


@pytest.mark.parametrize(("gain", "kind"), [(1.06, None), (1.14, "device")])
def test_device_must_gain_a_tenth(gain, kind):
    choice = choose_cache(readings(step_samples_per_s=7_000.0 * gain, device_room_bytes=64 * GB))
    assert choice.kind == kind


@given(
    st.builds(
        readings,
        disk_samples_per_s=st.floats(1, 1e6),
        prepare_samples_per_s=st.floats(1, 1e6),
        prepare_decoded_samples_per_s=st.none() | st.floats(1, 1e6),
        step_samples_per_s=st.just(float("inf")) | st.floats(1, 1e6),
        room_bytes=st.integers(0, 100 * GB),
        has_folder=st.booleans(),
        device_room_bytes=st.none() | st.integers(0, 100 * GB),
    )
)
def test_every_choice_fits_gains_and_has_a_reason(drawn):
    choice = choose_cache(drawn)
    assert choice.reason
    if choice.kind is None:
        assert choice.predicted_gain == 1
        return
    assert choice.predicted_gain >= 1.1
    if choice.kind in ("ram", "tmpfs"):
        each = drawn.sample_bytes if choice.form == "encoded" else drawn.decoded_bytes
        assert (choice.kind == "tmpfs") == drawn.has_folder
        assert choice.share * drawn.samples * each <= drawn.room_bytes * (1 + 1e-9)
    # No encoded cache where the disk is fast enough.
    if choice.form == "encoded" and choice.kind != "device":
        assert drawn.disk_samples_per_s < drawn.needed_samples_per_s


def test_unmeasured_disk_gets_no_cache():
    choice = choose_cache(readings(disk_samples_per_s=0.0))
    assert choice.kind is None
    assert "could not be measured" in choice.reason
