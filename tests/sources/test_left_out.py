"""Nothing in a folder is lost silently: files that are not records are listed, within a limit."""

import contextlib
import os
import resource
import tempfile
from pathlib import Path

import cv2  # noqa: F401 - the user that a test becomes cannot read it any more
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import FolderDataset, SourceError, pack
from fastload.shards.manifest import read_manifest
from fastload.sources import open_source
from fastload.sources.left_out import MOST_LISTED, LeftOutFiles, describe_left_out
from tests.folders import class_folders, encoded, pixels

GIF = b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2L\1\0;"
NOBODY = 65534


def listed(source):
    return {entry.key: entry.reason for entry in source.left_out}


names = st.sampled_from(
    [
        "1.jpg",
        "2.gif",
        "3",
        "x.txt",
        ".DS_Store",
        "._1.jpg",
        ".x",
        "README.md",
        "Thumbs.db",
        "caf\udce9",
        "a\nb",
    ]
)
folders = st.sampled_from(["", "a", "a/deep", "b", ".hidden", "train", "val", "val/a", "train/b"])


@settings(max_examples=60)
@given(st.dictionaries(st.tuples(folders, names), st.sampled_from([b"", b"text", GIF]), max_size=12))
def test_every_file_of_any_tree_is_a_record_or_listed(tree):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        (root / "a").mkdir(parents=True)
        for (where, name), data in tree.items():
            (root / where).mkdir(parents=True, exist_ok=True)
            (root / where / name).write_bytes(data)
        try:
            sources = open_source(root)
        except SourceError:
            return
        found = [path for source in sources.values() for path in paths_of(source)]
        found += [path for source in sources.values() for path in listed(source)]
        assert sorted(found) == sorted(os.path.join(where, name) for where, name in tree)


def paths_of(source):
    """Return the paths of a source's files below the folder that was packed."""
    place = os.path.relpath(source.files.folder, os.path.dirname(source.files.folder))
    prefix = f"{place}/" if place in ("train", "val", "test") else ""
    return [prefix + source.key(index) for index in range(len(source))]


def test_images_are_recognised_by_content_in_the_order_of_their_names(make_tree):
    root = make_tree(["a/1.jpg", "a/2.gif", "a/3", "a/4.png", "a/b/1.TXT", "a/notes.txt", "a/empty"])
    for name in ("2.gif", "3", "b/1.TXT"):
        (root / "a" / name).write_bytes(GIF)
    (root / "a/empty").write_bytes(b"")
    [source] = open_source(root).values()
    keys = [source.key(index) for index in range(len(source))]
    assert keys == ["a/1.jpg", "a/2.gif", "a/3", "a/4.png", "a/b/1.TXT"]
    assert listed(source) == {"a/notes.txt": "not an image", "a/empty": "not an image"}
    assert [path for path, _ in FolderDataset(root).samples] == [str(root / "a/1.jpg"), str(root / "a/4.png")]


def test_objects_of_a_git_clone_are_not_taken_for_images(make_tree):
    root = make_tree(["a/1.jpg", ".git/lfs/objects/ab/abcdef", ".git/index"])
    (root / ".git/lfs/objects/ab/abcdef").write_bytes(GIF)
    [source] = open_source(root).values()
    assert len(source) == 1
    assert set(listed(source).values()) == {"hidden"}


def test_images_beside_class_folders_are_listed(make_tree):
    [source] = open_source(make_tree(["a/1.jpg", "a/2.jpg", "x.jpg"])).values()
    assert listed(source) == {"x.jpg": "an image beside the class folders"}
    assert len(source) == 2


def test_more_images_beside_the_folders_than_in_them_are_refused(make_tree, image_folder):
    root = make_tree(["1.jpg", "2.jpg", "sub/1.jpg"])
    with pytest.raises(SourceError, match=r"got 2 beside the folders 'sub', and 1 in these: move"):
        open_source(root)
    assert FolderDataset(root).samples == image_folder(str(root)).samples


@pytest.mark.parametrize("target", ["nowhere", "odd", "/dev/null", None])
def test_special_files_are_listed(make_tree, target):
    root = make_tree(["a/1.jpg"])
    if target is None:
        os.mkfifo(root / "a/odd")
    else:
        (root / "a/odd").symlink_to(target)
    [source] = open_source(root).values()
    [(key, reason)] = listed(source).items()
    assert key == "a/odd"
    assert reason.startswith("cannot be read: " if target in ("nowhere", "odd") else "not an image")


def test_names_without_utf_8_and_with_newlines_are_in_the_manifest(tmp_path):
    source = class_folders(tmp_path / "photos", 3)
    odd = {os.fsdecode(b"class0/caf\xe9"), "class0/new\nline.txt"}
    for name in odd:
        (source / name).write_bytes(b"text")
    pack(source, tmp_path / "x.fl", encode="keep", workers=1)
    assert {entry.key for entry in read_manifest(tmp_path / "x.fl").left_out} == odd


def test_too_many_files_are_listed_by_suffix():
    files = LeftOutFiles()
    for number in range(3 * MOST_LISTED):
        files.add(f"labels/{number}.txt", "not an image")
        files.add(f"labels/{number}.{number:x}q{number:x}", "not an image")
    files.add("x.heic", "HEIC")
    found = files.finish()
    assert len(found) <= MOST_LISTED
    assert sum(entry.files for entry in found) == 6 * MOST_LISTED + 1
    assert ("**/*.txt", 3 * MOST_LISTED) in {(entry.key, entry.files) for entry in found}
    assert next(describe_left_out(found)) == "left out, HEIC: 1 file (1 .heic)"


def make_loop(root):
    (root / "class0" / "again").symlink_to("..")


def make_unlistable(root):
    """A path of more than 4096 characters cannot be listed, not even by root."""
    home = os.getcwd()
    os.chdir(root / "class0")
    try:
        for _ in range(17):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
    finally:
        os.chdir(home)


@pytest.mark.parametrize("make", [make_loop, make_unlistable])
def test_folders_that_cannot_be_listed_stop_packing(make):
    with tempfile.TemporaryDirectory() as top:
        source = class_folders(Path(top, "photos"), 6)
        make(source)
        with pytest.raises(SourceError, match=r"must not be a link|must be a folder that can be listed"):
            pack(source, Path(top, "x.fl"), workers=1)
        with pytest.raises(SourceError, match=r"must not be a link|must be a folder that can be listed"):
            pack(source, Path(top, "x.fl"), on_error="skip", workers=1)
        assert not Path(top, "x.fl").exists()
        with pytest.raises(SourceError):
            FolderDataset(source)


@pytest.mark.parametrize("spare", [0, 1])
def test_too_few_descriptors_are_never_taken_for_unreadable_files(make_tree, spare):
    root = make_tree(["a/1.jpg", "a/2", "b/x.txt"])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    handles = [os.open(root / "a/1.jpg", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (handles[0] + 8, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                handles.append(os.open(root / "a/1.jpg", os.O_RDONLY))
        for _ in range(spare):
            os.close(handles.pop())
        if spare:  # is enough: files are opened one after another
            assert {each.reason for each in open_source(root)[""].left_out} == {"not an image"}
        else:
            with pytest.raises(SourceError, match=r"Too many open files: allow this process more open files"):
                open_source(root)
    finally:
        for handle in handles:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not read")
def test_files_without_permission_are_named_with_the_next_step():
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        source = class_folders(Path(top, "photos"), 6)
        closed, image = source / "class1" / "closed", source / "class0" / "0000.jpg"
        closed.mkdir(0)
        image.chmod(0)
        (source / "class0" / "odd").touch(0)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(SourceError, match=r"class1/closed: must be a folder .*denied"):
                open_source(source)
        finally:
            os.seteuid(0)
        closed.rmdir()
        os.seteuid(NOBODY)
        try:
            [found] = open_source(source).values()
            with pytest.raises(SourceError, match=r"0000\.jpg: .*denied: allow this user to read it"):
                found.read(0)
        finally:
            os.seteuid(0)
        assert listed(found) == {"class0/odd": "cannot be read: Permission denied"}


def test_a_split_whose_only_folder_holds_its_images_is_refused(make_tree):
    tree = ["train/n1/images/1.jpg", "train/n2/images/1.jpg", "val/images/1.jpg"]
    with pytest.raises(SourceError, match=r"elsewhere, in .*val/images: 'fastload pack .*train DEST'"):
        open_source(make_tree(tree))


def test_camera_raws_are_not_taken_for_their_thumbnails(tmp_path):
    source = class_folders(tmp_path / "photos", 3)
    for name in ("a.nef", "b.DNG"):
        (source / "class0" / name).write_bytes(encoded(pixels(1), ".tiff"))
    [found] = open_source(source).values()
    assert {*listed(found).values()} == {"camera raw, of which OpenCV reads only previews"}


def test_one_text_file_per_image_is_listed_by_suffix(make_tree):
    root = make_tree([f"a/{number}.{suffix}" for number in range(1200) for suffix in ("jpg", "txt")])
    [source] = open_source(root).values()
    assert len(source) == 1200
    assert [(entry.key, entry.files) for entry in source.left_out] == [("**/*.txt", 1200)]
    assert np.array_equal(source.values["label"], np.zeros(1200))
