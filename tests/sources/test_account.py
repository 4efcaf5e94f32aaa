"""The account: every file of any folder is stored in a record, read with one, or left out with a reason."""

import os
import re
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload import SourceError, pack
from fastload.shards.manifest import packed_datasets, read_manifest
from fastload.sources import open_source
from tests.layouts.samples import coco, masks, photo, voc, written, yolo


def classes(root):
    return written(root, {f"{name}/{at}.jpg": photo(at) for name in ("cat", "dog") for at in range(2)})


def split_classes(root):
    names = ("train/cat", "train/dog", "val/dog")
    return written(root, {f"{name}/{name[-3:]}_{at}.jpg": photo(at) for name in names for at in range(2)})


DATASETS = [classes, split_classes, yolo, coco, voc, masks]

PHOTO, BOX = photo(7), b"0 0.5 0.5 0.25 0.125\n"
CONTENTS = {".jpg": PHOTO, ".PNG": PHOTO, ".gif": b"GIF89a", ".txt": BOX, ".xml": b"<annotation/>", "": b"x"}
stems = st.sampled_from(["a", "1", "0", "x y", "ü", "a.b.c", "-", "a\nb", ".x", "._0", "README", "caf\udce9"])
suffixes = st.sampled_from([".jpg", ".PNG", ".gif", ".txt", ".xml", ".json", ".csv", ".npy", ".db", ""])
FOLDERS = [
    "images",
    "images/train",
    "labels",
    "labels/val",
    "masks",
    "Annotations",
    "annotations",
    "val2017",
    "test",
    "extra/deep",
    ".git/objects",
    "valid",
    "train",
    "cat",
    "JPEGImages",
    "ImageSets/Main",
]
folders = st.sampled_from(["", "new class", *FOLDERS])
kinds = st.sampled_from(["file", "link", "loose"])
junk = st.dictionaries(st.tuples(folders, stems, suffixes), kinds, max_size=6)


def scattered(root, files):
    """Add files and links to a folder, unless something has their name."""
    for (folder, stem, suffix), kind in files.items():
        path = root / folder / f"{stem}{suffix}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                continue
            if kind == "file":
                path.write_bytes(CONTENTS.get(suffix, b"{}"))
            else:
                path.symlink_to(root.parent / "elsewhere.jpg" if kind == "link" else "nowhere")
        except (FileExistsError, NotADirectoryError):
            continue


def files_of(listing):
    return {os.path.join(files.folder, name) for files in listing for name in files.names if name}


@settings(max_examples=150)
@given(st.sampled_from(DATASETS), junk)
def test_every_file_of_any_folder_is_accounted_for(make, files):
    with tempfile.TemporaryDirectory() as top:
        Path(top, "elsewhere.jpg").write_bytes(PHOTO)
        root = make(Path(top, "data"))
        scattered(root, files)
        try:
            sources = open_source(root)
        except SourceError as error:
            assert re.search(r": (must|cannot|is|have) .*: ", str(error).replace("\n", " "))  # noqa: PT017
            return
        first = next(iter(sources.values()))
        there = [os.path.join(at, name) for at, _, names in os.walk(root, followlinks=True) for name in names]
        account = first.account
        assert account.files == len(there) == account.records + account.annotations + account.left_out
        stored = set().union(*(files_of(source.record_files()) for source in sources.values()))
        attached = files_of([first.attached] if first.attached is not None else [])
        left_out = {os.path.join(root, entry.key) for entry in first.left_out}
        found = Counter(map(os.path.normpath, [*(stored & {*there}), *attached, *left_out]))
        assert found == Counter(there)


def test_summary_and_exit_code_show_the_account(tmp_path, capsys):
    from fastload.cli.main import main

    root = written(yolo(tmp_path / "data"), {"images/test/9.jpg": PHOTO, "README.md": "a note"})
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--encode", "keep", "--workers", "1"]) == 1
    printed = capsys.readouterr().out
    assert "10 files in the source: 4 of records, 4 read with them, 2 left out" in printed
    assert "left out, an image of no record: 1 file (1 .jpg)" in printed


def test_skipped_files_are_left_out_in_the_account(tmp_path, capsys):
    from fastload.cli.main import main

    root = written(yolo(tmp_path / "data"), {"images/test/9.jpg": PHOTO})
    next((root / "images/train").iterdir()).write_bytes(b"")
    arguments = ["--encode", "keep", "--workers", "1", "--on-error", "skip"]
    assert main(["pack", str(root), str(tmp_path / "x.fl"), *arguments]) == 1
    printed = capsys.readouterr().out
    assert "9 files in the source: 3 of records, 4 read with them, 2 left out (1 skipped)" in printed


def test_the_masks_of_skipped_images_are_left_out_with_them(tmp_path):
    root = masks(tmp_path / "data")
    image = next(path for path in sorted(root.rglob("*")) if path.is_file())
    before = pack(root, tmp_path / "x.fl", encode="keep", workers=1).account
    image.write_bytes(b"")
    after = pack(root, tmp_path / "y.fl", encode="keep", workers=1, on_error="skip").account
    assert (after.records, after.left_out, after.skipped) == (before.records - 2, before.left_out + 2, 2)


def test_an_account_that_does_not_add_up_is_an_error(tmp_path):
    from fastload.sources.account import balanced
    from fastload.sources.listing import Listing

    root = classes(tmp_path / "data")
    with pytest.raises(SourceError, match="must have each of its files in a record, read or left out"):
        balanced(Listing.walk(str(root)), 3, 0, ())


def test_left_out_files_are_in_the_manifest_of_the_first_split(tmp_path):
    root = written(split_classes(tmp_path / "data"), {"extra/1.jpg": PHOTO, "train/notes.doc": "x"})
    pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    manifests = {path.stem: read_manifest(path) for path in packed_datasets(tmp_path / "x.fl")}
    assert {entry.key for entry in manifests["train"].left_out} == {"extra/1.jpg", "train/notes.doc"}
    assert manifests["val"].left_out == ()
