"""Images of the comparison: generated reproducibly, sampled evenly, only those that both libraries read."""

import pytest

from fastload.bench.images import link_images, list_images, make_files, read_images
from fastload.errors import SourceError
from tests.folders import class_folders, encoded, pixels


def test_generated_images_are_the_same_each_time(tmp_path):
    for name in ("a", "b"):
        make_files(tmp_path / name, 2, 0.2)
    first, second = (sorted((tmp_path / name).iterdir()) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes() != first[1].read_bytes()


def test_generated_images_have_the_size_of_imagenets(tmp_path):
    make_files(tmp_path, 8)
    _, described = read_images(tmp_path, None)
    assert 90_000 < described.mean_bytes < 130_000
    assert described.formats == {"jpeg": 8}


def test_a_folder_is_sampled_evenly_whatever_its_classes(tmp_path):
    given = class_folders(tmp_path / "given", 30)
    source = list_images(given)
    link_images(source, tmp_path / "taken", 6)
    taken = sorted((tmp_path / "taken").rglob("*.jpg"))
    expected = sorted(given.rglob("*.jpg"))[2::5]
    assert [path.relative_to(tmp_path / "taken") for path in taken] == [
        path.relative_to(given) for path in expected
    ]
    assert [path.read_bytes() for path in taken] == [path.read_bytes() for path in expected]


def test_first_split_stands_for_all(tmp_path):
    for split, count in (("train", 6), ("val", 4)):
        class_folders(tmp_path / split, count)
    assert len(list_images(tmp_path)) == 6


def test_images_that_cannot_be_compared_are_left_out_with_a_note(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.jpg").write_bytes(b"no image")
    (tmp_path / "1.png").write_bytes(encoded(pixels(1, 40, 50), ".png"))
    (tmp_path / "2.png").write_bytes(encoded(pixels(1, 7, 50), ".png"))
    images, described = read_images(tmp_path, 3)
    assert len(images) == 1
    assert described.formats == {"png": 1}
    assert described.notes == (
        "2.png is left out: it is too small",
        "a/0.jpg is left out: PIL or OpenCV cannot decode it",
    )


def test_no_readable_image_is_an_error(tmp_path):
    (tmp_path / "0.jpg").write_bytes(b"no image")
    with pytest.raises(SourceError, match="must be able to decode at least one"):
        read_images(tmp_path, 1)


def test_class_folders_without_images_are_an_error(tmp_path):
    (tmp_path / "cat").mkdir()
    with pytest.raises(SourceError, match="must hold images"):
        list_images(tmp_path)
