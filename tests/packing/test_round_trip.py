"""From files to shards and back: `keep` returns every byte for all names and contents."""

import os
import shutil

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fastload import PackedDataset, pack, unpack, verify
from fastload.images.encoding_names import ENCODING_NAMES
from fastload.shards.manifest import read_manifest
from fastload.shards.records import RecordReader
from tests.folders import class_folders, encoded, files_in, pixels, tree
from tests.images.samples import file_of

CONTAINERS = pytest.mark.parametrize("container", ["hdf5", "lmdb"])

# One file of each common kind, by name.
FILES = {
    "rgb.jpg": file_of(pixels(1)),
    "grey.jpg": file_of(pixels(2)[:, :, 0]),
    "cmyk.jpg": file_of(pixels(3), "JPEG", "CMYK"),
    "progressive.jpeg": file_of(pixels(4), "JPEG", progressive=True),
    "trailing.JPG": file_of(pixels(5)) + b"\0trailing bytes",
    "rgba.png": file_of(np.dstack([pixels(6), pixels(7)[:, :, 0]]), "PNG"),
    "grey_alpha.png": file_of(pixels(8), "PNG", "LA"),
    "palette.png": file_of(pixels(9), "PNG", "P"),
    "one_bit.PNG": file_of(pixels(10), "PNG", "1"),
    "one_pixel.png": file_of(pixels(11, 1, 1), "PNG"),
    "wide.jpg": file_of(pixels(12, 1, 5000)),
    "tall.png": file_of(pixels(13, 5000, 1), "PNG"),
    "bitmap.bmp": file_of(pixels(14), "BMP"),
    "pixmap.ppm": file_of(pixels(15), "PPM"),
    "tagged.tiff": file_of(pixels(16), "TIFF"),
    "web.webp": file_of(pixels(17), "WEBP"),
    "really_a_png.jpg": file_of(pixels(18), "PNG"),
}


def came_back(source, folder, **options):
    """Pack, verify and unpack a folder; return the result of packing and the unpacked folder."""
    result = pack(source, folder / "x.fl", workers=1, layout="classes", **options)
    assert not verify(folder / "x.fl", workers=1).damages
    unpacked = unpack(folder / "x.fl", folder / "back")
    assert not unpacked.damaged
    shutil.rmtree(folder / "x.fl")
    return result, folder / "back"


@CONTAINERS
def test_files_of_every_format_come_back(tmp_path, container):
    source = tmp_path / "photos"
    for turn, (name, data) in enumerate(FILES.items()):
        (source / f"class{turn % 2}").mkdir(parents=True, exist_ok=True)
        (source / f"class{turn % 2}" / name).write_bytes(data)
    result, back = came_back(source, tmp_path, encode="keep", format=container)
    assert result.records == len(FILES)
    assert tree(back) == tree(source)


@pytest.mark.parametrize("encode", ENCODING_NAMES)
@CONTAINERS
def test_files_of_every_format_are_packed_in_every_encoding(tmp_path, container, encode, require_tool):
    if encode == "tiled":
        require_tool("jpegtran")
    source = tmp_path / "photos"
    source.mkdir()
    for name, data in FILES.items():
        (source / name).write_bytes(data)
    pack(source, tmp_path / "x.fl", encode=encode, format=container, workers=1)
    assert not verify(tmp_path / "x.fl", workers=1).damages
    dataset = PackedDataset(tmp_path / "x.fl", transform=np.asarray)
    for index, name in enumerate(sorted(FILES)):
        assert dataset.read(index).key == name
        with Image.open(source / name) as image:
            assert dataset[index][0].shape == (image.height, image.width, 3)


NAME_CHARACTERS = st.characters(codec="utf-8", exclude_characters="/\0")
# A name has at most 255 bytes, five of them for the suffix; bytes that are not UTF-8 are in it as lone
# surrogates.
NAMES = st.one_of(
    st.text(NAME_CHARACTERS, min_size=1, max_size=60).filter(lambda name: name not in (".", "..")),
    st.binary(min_size=1, max_size=250).map(lambda data: os.fsdecode(data.translate(None, b"/\0") or b"x")),
    st.just("n" * 250),
    st.just("ü" * 125),
).filter(lambda name: len(os.fsencode(name)) <= 250 and name not in (".", ".."))

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40)) | st.sampled_from([(1, 1), (1, 5000), (5000, 1)])
SUFFIXES = st.sampled_from([".jpg", ".png", ".JPEG", ".bmp"])


@st.composite
def folders(draw):
    """Class folders: a list of images each, (name, height, width, seed)."""
    images = st.tuples(NAMES, SIZES, st.integers(0, 5), SUFFIXES)
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return {name: draw(st.lists(images, max_size=4, unique_by=lambda image: image[0])) for name in names}


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    content=folders().filter(lambda content: any(content.values())),
    container=st.sampled_from(["hdf5", "lmdb"]),
    shard_size=st.sampled_from([4096, 10**6]),
)
def test_any_folder_comes_back(tmp_path_factory, content, container, shard_size):
    folder = tmp_path_factory.mktemp("folder")
    for name, images in content.items():
        (folder / "photos" / name).mkdir(parents=True)
        for stem, size, seed, suffix in images:
            (folder / "photos" / name / (stem + suffix)).write_bytes(encoded(pixels(seed, *size), suffix))
    _, back = came_back(folder / "photos", folder, encode="keep", format=container, shard_size=shard_size)
    assert tree(back) == tree(folder / "photos")


@CONTAINERS
def test_links_are_followed_and_unpacked_as_files(tmp_path, container):
    source = class_folders(tmp_path / "photos", 6)
    elsewhere = class_folders(tmp_path / "elsewhere", 4, seed=50)
    (source / "class0" / "link.jpg").symlink_to(elsewhere / "class0" / "0000.jpg")
    (source / "linked").symlink_to(elsewhere, target_is_directory=True)
    result, back = came_back(source, tmp_path, encode="keep", format=container)
    assert result.records == 11
    assert files_in(back) == files_in(source)


@CONTAINERS
def test_equal_files_with_different_names_all_come_back(tmp_path, container):
    source = class_folders(tmp_path / "photos", 1)
    for name in ("copy.jpg", "again.jpg"):
        shutil.copy(source / "class0" / "0000.jpg", source / "class0" / name)
    result, back = came_back(source, tmp_path, encode="keep", format=container)
    assert result.records == 3
    assert tree(back) == tree(source)


def test_images_under_any_name_come_back(tmp_path):
    source = class_folders(tmp_path / "photos", 2, classes=2)
    formats = {"a.AVIF": "AVIF", "b.jfif": "JPEG", "no suffix": "PNG", "x.txt": "WEBP", "z.gif": "GIF"}
    for name, format in formats.items():
        (source / "class1" / name).write_bytes(file_of(pixels(3), format))
    # OpenCV reads GIF and AVIF only from certain versions on, depending on how it was built.
    unreadable = [name for name in formats if not cv2.haveImageReader(str(source / "class1" / name))]
    assert {*unreadable} <= {"a.AVIF", "z.gif"}
    readable = ["0001.jpg", *(name for name in formats if name not in unreadable)]
    for encode in ("keep", "raw"):
        [split] = pack(source, tmp_path / f"{encode}.fl", encode=encode).splits
        assert split.records == 1 + len(readable)
        assert sorted(entry.key for entry in split.left_out) == [f"class1/{name}" for name in unreadable]
        dataset = PackedDataset(tmp_path / f"{encode}.fl")
        keys = [dataset.read(index).key for index in range(1, len(dataset))]
        assert keys == [f"class1/{name}" for name in readable]
        assert [dataset[index][1] for index in range(len(dataset))] == [0] + [1] * len(readable)
    unpack(tmp_path / "keep.fl", tmp_path / "back")
    (source / "class1" / "no suffix").rename(source / "class1" / "no suffix.png")
    for name in unreadable:
        (source / "class1" / name).unlink()
    assert tree(tmp_path / "back") == tree(source)


def test_splits_become_separate_datasets(tmp_path):
    for split, classes in (("train", 3), ("val", 2)):
        class_folders(tmp_path / "photos" / split, 9, classes=classes)
    result = pack(tmp_path / "photos", tmp_path / "both", encode="keep")
    assert [split.path.name for split in result.splits] == ["train.fl", "val.fl"]
    for split in result.splits:
        assert read_manifest(split.path).classes == ("class0", "class1", "class2")
    unpack(tmp_path / "both", tmp_path / "back")
    assert files_in(tmp_path / "back") == files_in(tmp_path / "photos")


def test_packing_changes_nothing_in_the_source(tmp_path):
    source = class_folders(tmp_path / "photos", 20)
    before = tree(source), [path.stat().st_mtime_ns for path in sorted(source.rglob("*"))]
    pack(source, tmp_path / "x.fl")
    assert (tree(source), [path.stat().st_mtime_ns for path in sorted(source.rglob("*"))]) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "x.fl"]


def test_keys_are_paths_from_the_source(tmp_path):
    source = class_folders(tmp_path / "photos", 5)
    pack(source, tmp_path / "x.fl", encode="keep")
    reader = RecordReader(tmp_path / "x.fl")
    found = [reader.read(index).key for index in range(len(reader))]
    assert found == sorted(str(path.relative_to(source)) for path in source.rglob("*.jpg"))
