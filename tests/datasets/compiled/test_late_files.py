"""JPEG files that a user's code opens with PIL, and that are decoded when their pixels are asked for."""

import contextlib
import io

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from fastload.datasets.compiled.late_files import decoded_late
from fastload.datasets.compiled.lazy import LazyImage
from tests.images.samples import file_of, photo


@pytest.fixture
def path(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(file_of(photo(60, 70, seed=3), "JPEG"))
    return tmp_path / "photo.jpg"


def _pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_a_file_is_decoded_on_first_use(path):
    with decoded_late(2.0):
        image = Image.open(path).convert("RGB")
        assert type(image) is LazyImage
        with open(path, "rb") as file:
            other = Image.open(file).convert("RGB")
    path.unlink()
    path.write_bytes(file_of(np.asarray(image), "PNG"))
    assert np.array_equal(_pixels(path), np.asarray(other))
    assert "convert" not in vars(JpegImagePlugin.JpegImageFile)


def test_the_opened_image_stays_usable(path):
    expected = _pixels(path)
    with decoded_late(2.0):
        opened = Image.open(path)
        late = opened.convert("RGB")
        assert opened.size == (70, 60)
        assert np.array_equal(np.asarray(opened), expected)
        assert np.array_equal(np.asarray(opened.convert("L")), np.asarray(late.convert("L")))
        opened.close()
    assert np.array_equal(np.asarray(late), expected)


def test_parts_of_one_image_are_equal_however_often_it_is_used(path):
    expected = _pixels(path)
    with decoded_late(2.0):
        image = Image.open(path).convert("RGB")
    for box in ((3, 4, 40, 30), (10, 0, 70, 60), (0, 0, 70, 60)):
        left, top, right, bottom = box
        assert np.array_equal(np.asarray(image.crop(box)), expected[top:bottom, left:right])


def test_an_opened_image_of_which_a_copy_was_made_has_no_draft(path):
    sums = []
    for late in (False, True):
        with decoded_late(2.0) if late else contextlib.nullcontext():
            opened = Image.open(path)
            opened.convert("RGB")
        opened.thumbnail((20, 20))
        sums.append(np.asarray(opened, np.int64).sum())
    assert sums[0] == sums[1]


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK"])
def test_other_modes_are_pils(path, mode):
    with Image.open(path) as image:
        expected = image.convert(mode)
    with decoded_late(2.0), Image.open(path) as image:
        found = image.convert(mode)
    assert type(found) is Image.Image
    assert found.tobytes() == expected.tobytes()


def test_images_that_were_changed_before_are_pils(path):
    with decoded_late(2.0), Image.open(path) as image:
        image.draft("RGB", (30, 30))
        assert type(image.convert("RGB")) is Image.Image
    with decoded_late(2.0), Image.open(path) as image:
        image.load()
        assert type(image.convert("RGB")) is Image.Image


def test_truncated_and_closed_files_raise_pils_errors(path):
    data = path.read_bytes()
    with decoded_late(2.0):
        with Image.open(io.BytesIO(data[: len(data) // 2])) as cut, pytest.raises(OSError, match="truncated"):
            cut.convert("RGB")
        opened = Image.open(path)
        opened.close()
        with pytest.raises((ValueError, AttributeError)):
            opened.convert("RGB")
