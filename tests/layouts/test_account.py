"""Every file of any tree of YOLO or Pascal VOC is a record's, was read, or is left out with a reason."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from fastload import SourceError
from fastload.shards.manifest import read_manifest
from fastload.sources import open_source
from tests.commands import run
from tests.layouts.samples import photo, voc_object, voc_xml, written

BOX = "0 0.5 0.5 0.25 0.125\n"
XML = voc_xml(voc_object())
IMAGE = photo(0)
YAML = "train: images/train\nval: images/val\nnames: [cat]\n"

# None of these could have been data.
CLUTTER = ("README.md", "README.roboflow.txt", ".DS_Store", "LICENSE", ".git/config", "Thumbs.db")

stems = st.sampled_from(["a", "b", "IMG 1", "ü", "a.b", "caf\udce9", "new\nline", "-1", "0"])
suffixes = st.sampled_from([".jpg", ".JPG", ".png", ".txt", ".xml", ".json", ".npy", ".gif", ".cache", ""])
places = {
    "yolo": st.sampled_from([
        "images/train", "images/val", "images/test", "images", "labels/train", "labels/val", "labels",
        "masks/train", "", "extra", "train/images", "images/train/labels",
    ]),
    "voc": st.sampled_from([
        "JPEGImages", "Annotations", "SegmentationClass", "JPEGImages/deep", "ImageSets/Main", "ImageSets",
        "ImageSets/Layout", "ImageSets/Segmentation", "", "extra", "Annotations/deep",
    ]),
}  # fmt: skip
cores = {
    "yolo": {"images/train/x.jpg": IMAGE, "labels/train/x.txt": BOX, "images/val/y.jpg": IMAGE},
    "voc": {"JPEGImages/x.jpg": IMAGE, "Annotations/x.xml": XML},
}
further = {
    "yolo": st.sampled_from([{}, {"data.yaml": YAML}, {"classes.txt": "cat\n"}]),
    "voc": st.sampled_from([
        {}, {"ImageSets/Main/train.txt": "x\n"}, {"ImageSets/Main/trainval.txt": "x.jpg\n"},
        {"ImageSets/Segmentation/valid.txt": "x\n"}, {"ImageSets/Main/fold1.txt": "x\n"},
    ]),
}  # fmt: skip
CONTENTS = {".jpg": IMAGE, ".png": IMAGE, ".txt": BOX, ".xml": XML}


def content_of(path):
    is_list = path.startswith("ImageSets")
    return "x\n" if is_list else CONTENTS.get(os.path.splitext(path)[1].lower(), b"\x93NUMPY")


def listed(root):
    """Return the files below a folder, through links."""
    walked = os.walk(root, followlinks=True)
    return {os.path.relpath(os.path.join(top, name), root) for top, _, names in walked for name in names}


@pytest.mark.parametrize("kind", ["yolo", "voc"])
def test_the_files_of_any_tree_add_up(kind):
    @settings(max_examples=120, deadline=None)
    @given(
        st.lists(st.tuples(places[kind], stems, suffixes), min_size=2, max_size=8),
        further[kind],
        st.lists(st.sampled_from(CLUTTER), max_size=2),
        st.sampled_from([None, "linked", "images/linked", "JPEGImages/linked"]),
    )
    def check(files, more, clutter, link):
        with tempfile.TemporaryDirectory() as folder:
            tree = {os.path.join(place, stem + suffix): "" for place, stem, suffix in files}
            tree = {path: content_of(path) for path in tree}
            root = written(Path(folder, "root"), tree | dict.fromkeys(clutter, "x") | cores[kind] | more)
            if link:
                written(Path(folder, "target"), {"l.jpg": IMAGE, "l.txt": BOX})
                (root / link).parent.mkdir(exist_ok=True)
                (root / link).symlink_to(Path(folder, "target"))
            require_account(root)

    def require_account(root):
        try:
            sources = open_source(root)
        except SourceError:
            event("refused")
            return
        first = next(iter(sources.values()))
        files = listed(root)
        left_out = {entry.key: entry for entry in first.left_out}
        account = first.account
        assert account.files == len(files) == account.records + account.annotations + account.left_out
        records, others = (
            {path for source in sources.values() for path in paths_of(getattr(source, name)(), root)}
            for name in ("record_files", "annotation_files")
        )
        assert records <= files
        assert len(records) == account.records
        assert left_out.keys() <= files - records - others
        for path in files - records - others:
            is_hidden = "/." in f"/{path}"
            if path in left_out and left_out[path].is_clutter:
                # So are copies of labels, caches, and what belongs to images that VOC's other lists name.
                is_known = path.endswith((".txt", ".cache")) or left_out[path].reason.endswith("in no split")
                assert is_known or path in CLUTTER or is_hidden
            if path.endswith((".jpg", ".JPG", ".png", ".xml", ".npy")) and not is_hidden:
                assert path in left_out

    def paths_of(lists, root):
        return [
            os.path.relpath(each.path(at), root)
            for each in lists
            for at in range(len(each))
            if each.names[at]
        ]

    check()


@pytest.mark.parametrize(
    ("tree", "lost"),
    [
        ({"images/test/z.jpg": IMAGE, "labels/test/z.txt": BOX}, {"images/test/z.jpg", "labels/test/z.txt"}),
        ({"labels/train/none.txt": BOX}, {"labels/train/none.txt"}),
        ({"depth/x.npy": b"\x93NUMPY"}, {"depth/x.npy"}),
        ({"masks/other/x.png": IMAGE}, {"masks/other/x.png"}),
        ({"README.roboflow.txt": "x", "labels/train.cache": "x", "classes.txt": "cat\n"}, set()),
    ],
)
def test_what_could_have_been_data_makes_exit_code_1(tmp_path, tree, lost):
    root = written(tmp_path / "data", cores["yolo"] | {"labels/val/y.txt": BOX, "data.yaml": YAML} | tree)
    done = run("pack", root, tmp_path / "x.fl", "--encode", "keep")
    assert done.returncode == (1 if lost else 0), done.stderr
    left_out = read_manifest(tmp_path / "x.fl/train.fl").left_out
    assert {entry.key for entry in left_out if not entry.is_clutter} == lost
