"""The account of annotated folders: every file is a record's, was read, or is left out with a reason."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.sources import open_source
from tests.layouts.samples import mask, photo, written

STEMS = ("0", "a b", "ü", "x.y", "IMG-1", "#1", "a'b", "byte \udcff")
SUFFIXES = (".jpg", ".JPEG", ".png")
# Files that no user would miss, and files that could be data.
CLUTTER = ("README.md", ".DS_Store", ".git/config", ".cache/0.jpg", "images/Thumbs.db", "LICENSE")
DATA = ("notes.txt", "extra/more.jpg", "test2/unknown.png", "list.csv", "images2/a/b.npy", "movie.mp4")

names = st.lists(
    st.builds(lambda stem, suffix: stem + suffix, st.sampled_from(STEMS), st.sampled_from(SUFFIXES)),
    min_size=2,
    max_size=5,
    unique_by=lambda name: os.path.splitext(name)[0],
)
splits = st.sampled_from(((), ("train",), ("train", "val"), ("training", "validation", "test")))
subset = st.lists(st.sampled_from(CLUTTER + DATA), unique=True)


@st.composite
def trees(draw, files_of):
    """Files of a dataset: of records, read with them, and others; links to folders, by their names."""
    records, read, unused = set(), {}, set()
    for split in draw(splits) or ("",):
        images, further = draw(names), draw(st.lists(st.sampled_from(("one", "two")), unique=True))
        found = files_of(split, images, further)
        records |= found[0]
        read |= found[1]
        unused |= found[2]
    others = draw(subset)
    return records, read, unused | {*others} & {*DATA}, {*others} & {*CLUTTER}, draw(st.booleans())


def masks_of(split, images, further):
    """Images and masks inside splits; `further` are masks without an image."""
    records = {os.path.join("images", split, name) for name in images}
    read = {os.path.join("masks", split, os.path.splitext(name)[0] + "_mask.png"): b"" for name in images}
    return records, read, {os.path.join("masks", split, f"no {name}.gif") for name in further}


def outer_masks_of(split, images, further):
    """Images and masks in folders that are named after splits; `further` are masks without an image."""
    split = split or "train"
    records = {f"{split}/{name}" for name in images}
    read = {f"{split}annot/{os.path.splitext(name)[0]}.png": b"" for name in images}
    return records, read, {f"{split}annot/no {name}.png" for name in further}


def coco_of(split, images, further):
    """Images that a json lists, with the folder's other images as `further`."""
    place = os.path.join("images", split)
    content = {
        "images": [{"id": at, "file_name": name} for at, name in enumerate(images) if "\udcff" not in name],
        "annotations": [],
        "categories": [],
    }
    records = {os.path.join(place, each["file_name"]) for each in content["images"]}
    unlisted = {os.path.join(place, name) for name in images if "\udcff" in name}
    unlisted |= {os.path.join(place, f"{name}.jpg") for name in further}
    return records, {f"annotations/instances_{split}.json": json.dumps(content).encode()}, unlisted


def check(tree):
    records, read, unused, clutter, has_link = tree
    with tempfile.TemporaryDirectory() as folder:
        root, outside = Path(folder, "data"), Path(folder, "outside")
        for path in (*records, *unused, *clutter):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(b"")
        for path, data in read.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        if has_link:
            outside.mkdir()
            (outside / "far.jpg").touch()
            (root / "linked").symlink_to(outside)
            (root / "broken.jpg").symlink_to("nowhere.jpg")
            unused = {*unused, "linked/far.jpg", "broken.jpg"}
        sources = open_source(root)
        first, *others = sources.values()
        assert {path for each in sources.values() for path in each.files.names} == records
        assert {entry.key for entry in first.left_out if not entry.is_clutter} == unused
        assert {entry.key for entry in first.left_out if entry.is_clutter} == clutter
        account = first.account
        assert account.records + account.annotations == len(records) + len(read)
        assert account.files == account.records + account.annotations + account.left_out
        assert account.files == sum(len(files) for _, _, files in os.walk(root, followlinks=True))
        assert all(not each.left_out and each.account is None for each in others)


@settings(deadline=None, max_examples=60)
@given(trees(masks_of))
def test_every_file_of_images_and_masks_is_accounted_for(tree):
    check(tree)


@settings(deadline=None, max_examples=60)
@given(trees(outer_masks_of))
def test_every_file_of_splits_with_masks_is_accounted_for(tree):
    check(tree)


@settings(deadline=None, max_examples=60)
@given(trees(coco_of))
def test_every_file_of_a_coco_dataset_is_accounted_for(tree):
    check(tree)


@pytest.mark.parametrize("places", [("images", "masks"), ("train", "train_masks")])
def test_folders_of_both_images_and_masks_are_said_to_give_no_labels(tmp_path, places):
    images, masks = places
    stems = [f"{name}/{at}" for name in ("cat", "dog") for at in range(3)]
    tree = {f"{images}/{stem}.jpg": photo(1) for stem in stems}
    root = written(tmp_path / "data", tree | {f"{masks}/{stem}.png": mask(1) for stem in stems})
    [source] = open_source(root).values()
    assert source.kind == "masks"
    [warning] = source.warnings
    assert "'cat', 'dog' give no labels" in warning
