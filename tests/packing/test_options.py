"""Options of `pack`: sizes as people write them, and invalid values."""

import pytest

from fastload import pack
from fastload.errors import OptionError
from fastload.packing.encoding.options import PackOptions
from fastload.system.units import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4096B", 4096),
        ("256MB", 256_000_000),
        ("256mb", 256_000_000),
        ("64KB", 64_000),
        ("64 KiB", 65_536),
        (" 1.5 GiB ", 1_610_612_736),
        ("2T", 2 * 10**12),
        ("1k", 1000),
        ("0", 0),
    ],
)
def test_size_is_parsed_as_people_write_it(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-5", "1e6", "5 XB", "1.2.3MB", "1i", "4096 apples", "٣MB", "nan", "9" * 400]
)
def test_text_that_is_not_a_size_is_refused(text):
    with pytest.raises(OptionError, match="256MB"):
        parse_size(text)


@pytest.mark.parametrize("value", [None, 1e6, [4096], True, -4096])
def test_size_of_another_type_is_refused(value):
    with pytest.raises(OptionError, match="size"):
        parse_size(value)


@pytest.mark.parametrize(
    "options",
    [
        {"format": "zip"},
        {"format": None},
        {"encode": "webp"},
        {"on_error": "ignore"},
        {"quality": 0},
        {"quality": 101},
        {"quality": "high"},
        {"shard_size": 4095},
        {"shard_size": "huge"},
        {"shard_size": None},
        {"space": "some"},
        {"workers": 0},
        {"workers": -1},
        {"workers": 1.5},
        {"max_side": 0},
        {"max_side": -3},
        {"max_side": "256"},
        {"size": (0, 5)},
        {"size": (3, 4, 5)},
        {"size": "256"},
        {"size": (1, 2), "max_side": 3},
        {"shorter_side": 5, "max_side": 3},
        {"encode": "keep", "max_side": 256},
        {"encode": "tiled", "size": 256},
    ],
    ids=str,
)
def test_invalid_option_is_refused_before_anything_is_written(tmp_path, options):
    (tmp_path / "photos").mkdir()
    with pytest.raises(OptionError) as caught:
        pack(tmp_path / "photos", tmp_path / "photos.fl", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    name = next(iter(options))
    assert name in str(caught.value) or "size" in str(caught.value)


def test_defaults_are_valid():
    assert PackOptions().encode == "auto"
