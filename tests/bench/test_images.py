"""Images of the comparison: generated reproducibly, sampled evenly, only those that both libraries read."""

import numpy as np
import pytest

from fastload.bench.images import copy_files, inputs_for, make_files, read_images
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
    assert described.side == 224


def test_a_folder_is_sampled_evenly_whatever_its_classes(tmp_path):
    class_folders(tmp_path / "given", 30)
    assert copy_files(tmp_path / "given", tmp_path / "taken", 6) == 30
    taken = sorted((tmp_path / "taken").iterdir())
    assert [path.name for path in taken] == [f"{number:04d}.jpg" for number in range(6)]
    given = sorted((tmp_path / "given").rglob("*.jpg"))
    assert [path.read_bytes() for path in taken] == [given[2 + 5 * n].read_bytes() for n in range(6)]


def test_splits_are_taken_together(tmp_path):
    for split in ("train", "val"):
        class_folders(tmp_path / "given" / split, 6)
    assert copy_files(tmp_path / "given", tmp_path / "taken", 24) == 12


def test_unreadable_images_are_left_out_with_a_note(tmp_path):
    (tmp_path / "0.jpg").write_bytes(b"no image")
    (tmp_path / "1.png").write_bytes(encoded(pixels(1, 40, 50), ".png"))
    images, described = read_images(tmp_path, 2)
    assert [image.format for image in images] == ["png"]
    assert described.notes == (".jpg file 1 is left out: PIL or OpenCV cannot decode it",)
    assert [path.name for path in tmp_path.iterdir()] == ["1.png"]


def test_small_images_make_small_crops_with_whole_halves(tmp_path):
    (tmp_path / "0.png").write_bytes(encoded(pixels(1, 32, 45), ".png"))
    _, described = read_images(tmp_path, 1)
    assert described.side == 28


def test_a_few_small_images_do_not_make_all_crops_small(tmp_path):
    for number, side in enumerate((300, 100, 256, 400)):
        (tmp_path / f"{number}.png").write_bytes(encoded(pixels(number, side, side + 9), ".png"))
    images, described = read_images(tmp_path, 4)
    assert described.side == 224
    assert [image.pixels.shape[0] for image in images] == [300, 256, 400]
    assert described.notes == ("left out so that all crops are 224 pixels wide: 1 small image",)
    assert len(list(tmp_path.iterdir())) == 3


def test_no_readable_image_is_an_error(tmp_path):
    (tmp_path / "0.jpg").write_bytes(b"no image")
    with pytest.raises(SourceError, match="must be able to decode at least one"):
        read_images(tmp_path, 1)


def test_class_folders_without_images_are_an_error(tmp_path):
    (tmp_path / "given" / "cat").mkdir(parents=True)
    with pytest.raises(SourceError, match="must hold images"):
        copy_files(tmp_path / "given", tmp_path / "taken", 6)


def test_operations_start_from_the_same_pixels(made):
    images, _ = made
    np.testing.assert_array_equal(next(iter(inputs_for(images, "pixels", 64))), images[0].pixels)
    assert next(iter(inputs_for(images, "small", 64))).shape == (32, 32, 3)
    assert next(iter(inputs_for(images, "data", 64))) == images[0].data
