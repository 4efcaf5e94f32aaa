"""`--encode auto`: the choice from statistics of a source, and these statistics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastload.errors import OptionError
from fastload.images.resize import SizeLimit
from fastload.packing.encoding.options import SAMPLE_RECORDS, SourceStats, choose_encoding, estimate_stats
from fastload.sources import open_source
from tests.folders import class_folders, encoded, pixels

PHOTOS = SourceStats(records=1000, mean_source_bytes=110_000, mean_pixels=470 * 390, jpeg_share=1.0)
THUMBNAILS = SourceStats(records=50_000, mean_source_bytes=950, mean_pixels=32 * 32, jpeg_share=1.0)
SMALL = SourceStats(records=2000, mean_source_bytes=1200, mean_pixels=64 * 64, jpeg_share=1.0)
PNGS = SourceStats(records=1000, mean_source_bytes=130_000, mean_pixels=470 * 390, jpeg_share=0.1)


def chosen(sample, is_resized=False, has_jpegtran=True, space_bytes=None):
    return choose_encoding(sample, is_resized=is_resized, has_jpegtran=has_jpegtran, space_bytes=space_bytes)


@pytest.mark.parametrize(
    ("sample", "options", "encode"),
    [
        (THUMBNAILS, {}, "raw"),
        (PHOTOS, {}, "tiled"),
        (SMALL, {}, "keep"),
        (PHOTOS, {"has_jpegtran": False}, "keep"),
        (PNGS, {}, "keep"),
        (PHOTOS, {"space_bytes": 10**9}, "raw"),
        (PHOTOS, {"space_bytes": 110_000_000}, "tiled"),
        (PHOTOS, {"space_bytes": 109_000_000}, "jpeg"),
        (PHOTOS, {"is_resized": True}, "jpeg"),
        (THUMBNAILS, {"is_resized": True}, "raw"),
    ],
)
def test_choice_follows_size_and_space(sample, options, encode):
    assert chosen(sample, **options)[0] == encode


@pytest.mark.parametrize("is_resized", [False, True])
def test_too_little_space_is_an_error_with_the_space_needed(is_resized):
    with pytest.raises(OptionError, match=r"JPEG would take about 73\.3 MB of 1\.0 MB allowed"):
        chosen(PHOTOS, is_resized=is_resized, space_bytes=10**6)


def test_reason_tells_how_to_get_jpegtran():
    assert "apt install libjpeg-turbo-progs" in chosen(PHOTOS, has_jpegtran=False)[1]


def test_reason_for_a_lossy_choice_tells_that_it_is_lossy():
    assert "lossy" in chosen(PHOTOS, space_bytes=100_000_000)[1]


SAMPLES = st.builds(SourceStats, st.integers(1, 10**7), st.floats(1, 1e7), st.floats(1, 1e8), st.floats(0, 1))


@given(sample=SAMPLES, space=st.none() | st.integers(1, 10**14), has_jpegtran=st.booleans())
def test_pixels_are_changed_only_if_nothing_else_fits(sample, space, has_jpegtran):
    try:
        encode, reason = chosen(sample, has_jpegtran=has_jpegtran, space_bytes=space)
    except OptionError:
        assert space is not None
        return
    assert reason
    if encode == "jpeg":
        assert space < sample.mean_source_bytes * sample.records
    if encode == "tiled":
        assert has_jpegtran


def test_splits_count_by_their_records(tmp_path):
    small = open_source(class_folders(tmp_path / "small", 90, size=(10, 10)))[""]
    large = open_source(class_folders(tmp_path / "large", 10, size=(100, 100)))[""]
    both, of_small, of_large = (estimate_stats(each, None) for each in ([small, large], [small], [large]))
    assert both.records == 100
    expected = 0.9 * of_small.mean_pixels + 0.1 * of_large.mean_pixels
    assert both.mean_pixels == pytest.approx(expected)
    assert both.jpeg_share == 1.0


def test_statistics_come_from_headers_of_files(tmp_path):
    source = open_source(class_folders(tmp_path, 100, size=(20, 30)))[""]
    sample = estimate_stats([source], None)
    assert sample.records == 100
    assert sample.jpeg_share == 1.0
    assert 20 * 30 <= sample.mean_pixels <= 24 * 36
    mean = source.size_bytes() / 100
    assert 0.8 * mean < sample.mean_source_bytes < 1.2 * mean
    assert SAMPLE_RECORDS < 100


def test_statistics_count_pixels_as_they_would_be_stored(tmp_path):
    source = open_source(class_folders(tmp_path, 10, size=(40, 60)))[""]
    assert estimate_stats([source], SizeLimit(size=(8, 8))).mean_pixels == 64


def test_statistics_leave_out_unreadable_files(tmp_path):
    class_folders(tmp_path, 3)
    (tmp_path / "class0" / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "class0" / "gone.jpg").symlink_to("nowhere")
    (tmp_path / "class0" / "x.png").write_bytes(encoded(pixels(0), ".png"))
    sample = estimate_stats(open_source(tmp_path).values(), None)
    assert sample.records == 6
    assert sample.jpeg_share == 0.75
