import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.datasets.folder import FolderDataset
from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source
from fastload.sources.listing import IMAGE_SUFFIXES

NOT_UTF_8 = os.fsdecode(b"caf\xe9")


def one(root, layout=None):
    [(split, source)] = open_source(root, layout=layout).items()
    assert split == ""
    return source


def keys(source):
    return [source.key(index) for index in range(len(source))]


def labels(source):
    return [source.read(index).values["label"] for index in range(len(source))]


def assert_lists_what_image_folder_lists(root, image_folder):
    reference = image_folder(str(root), allow_empty=True)
    source = one(root, layout="classes")
    assert source.classes == tuple(reference.classes)
    paths = [os.path.join(str(root), key) for key in keys(source)]
    assert list(zip(paths, source.values["label"].tolist(), strict=True)) == reference.samples
    return source


def test_suffixes_are_those_of_image_folder():
    folder = pytest.importorskip("torchvision.datasets.folder")
    assert IMAGE_SUFFIXES == folder.IMG_EXTENSIONS


def test_class_folders_are_listed_as_by_image_folder(make_tree, image_folder):
    root = make_tree(
        [
            *("dog/2.jpg", "dog/10.JPG", "dog/1.png", "dog/notes.txt", "dog/.jpg", "dog/._1.jpg"),
            *(
                "cat/a/b/deep.webp",
                "cat/a-b/x.tiff",
                "cat/a/x.ppm",
                "cat/z.bmp",
                "cat/a.jpeg/y.pgm",
            ),
            *(
                "Zebra/1.TIF",
                "zebra/1.tif",
                "ø/å.jpg",
                "犬/いぬ.jpg",
                f"{NOT_UTF_8}/{NOT_UTF_8}.jpg",
            ),
            *("e\u0301/1.jpg", "é/1.jpg", ".ipynb_checkpoints/1.jpg", "empty/", "x.jpg/1.jpg"),
            *("l" * 255 + "/" + "ü" * 125 + ".jpg", "README.md"),
        ]
    )
    source = assert_lists_what_image_folder_lists(root, image_folder)
    assert [entry.key for entry in source.left_out] == ["dog/notes.txt", "README.md"]
    assert source.kind == "folder"
    assert source.fields == (Field.label(),)
    assert ".ipynb_checkpoints" in source.classes
    assert [source.read(index).image for index in range(len(source))] == [
        os.fsencode(key) for key in keys(source)
    ]


# Characters next to "/" in ASCII: sorting paths is not the same as sorting their parts.
parts = st.text(st.sampled_from("aB-.0é"), min_size=1, max_size=3).filter(lambda s: s.strip("."))
paths = st.builds(
    lambda folders, name, suffix: "/".join([*folders, name + suffix]),
    st.lists(parts, min_size=1, max_size=3),
    parts,
    st.sampled_from([".jpg", ".JPEG", ".png", ".txt", ""]),
)


@settings(max_examples=60)
@given(st.sets(paths, min_size=1, max_size=12))
def test_any_tree_is_listed_as_by_image_folder(image_folder, tree):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        (root / "class").mkdir(parents=True)
        (root / "class/image.jpg").touch()
        for path in tree:
            try:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).touch()
            except OSError:  # a name that is a file here and a folder there
                continue
        assert_lists_what_image_folder_lists(root, image_folder)


def test_links_to_files_folders_and_nowhere_are_listed_as_by_image_folder(make_tree, image_folder):
    root = make_tree(["cat/1.jpg", "dog/1.jpg", "dog/pups/2.jpg"])
    (root / "cat/linked.jpg").symlink_to(root / "dog/1.jpg")
    (root / "cat/broken.jpg").symlink_to(root / "nowhere.jpg")
    (root / "cat/itself.jpg").symlink_to("itself.jpg")
    (root / "cat/dogs").symlink_to(root / "dog")
    (root / "wolf").symlink_to(root / "dog", target_is_directory=True)
    source = assert_lists_what_image_folder_lists(root, image_folder)
    assert source.read(keys(source).index("cat/dogs/pups/2.jpg")).image == b"dog/pups/2.jpg"
    for name in ("broken", "itself"):
        with pytest.raises(SourceError, match=rf"cat/{name}\.jpg: must be a file that can be read"):
            source.read(keys(source).index(f"cat/{name}.jpg"))


@pytest.mark.parametrize("target", [".", "..", "../..", "../../dog"])
def test_link_into_its_own_path_is_named(make_tree, target):
    root = make_tree(["cat/a/1.jpg", "dog/1.jpg"])
    (root / "cat/a/again").symlink_to(target)
    (root / "dog/cats").symlink_to("../cat")
    with pytest.raises(SourceError, match=r"must not be a link to a folder above it.*remove the link"):
        open_source(root)


def test_class_that_links_to_the_root_is_named(make_tree):
    root = make_tree(["cat/1.jpg"])
    (root / "all").symlink_to(root)
    with pytest.raises(SourceError, match="photos/all: must not be a link"):
        open_source(root)


def test_folder_that_cannot_be_listed_is_named():
    with tempfile.TemporaryDirectory() as top:
        home = os.getcwd()
        os.chdir(top)
        try:
            for _ in range(20):  # 5000 characters deep: longer than any path may be
                os.mkdir("d" * 250)
                os.chdir("d" * 250)
        finally:
            os.chdir(home)
        with pytest.raises(SourceError, match=r"must be a folder that can be listed.*File name too long"):
            open_source(top)


def test_folders_nested_deeper_than_python_recurses_are_listed(make_tree):
    root = make_tree(["cat/1.jpg"])
    nested = [f"{root}/cat{'/d' * depth}" for depth in range(1, 1500)]
    for folder in nested:
        os.mkdir(folder)
    image = Path(nested[-1], "1.jpg")
    image.touch()
    try:
        assert len(one(root)) == 2
    finally:  # pytest's own removal recurses
        image.unlink()
        for folder in reversed(nested):
            os.rmdir(folder)


def test_empty_classes_keep_their_labels_and_give_a_warning(make_tree):
    source = one(make_tree(["a/", "b/1.jpg", "c/notes.txt", "d/1.jpg"]))
    assert source.classes == ("a", "b", "c", "d")
    assert labels(source) == [1, 3]
    [warning] = source.warnings
    assert "without images" in warning
    assert "'a', 'c'" in warning


def test_hidden_classes_give_a_warning(make_tree):
    source = one(make_tree([".ipynb_checkpoints/1.jpg", "a/1.jpg"]))
    assert labels(source) == [0, 1]
    [warning] = source.warnings
    assert "hidden" in warning
    assert "'.ipynb_checkpoints'" in warning


def test_ordinary_folder_gives_no_warning(make_tree):
    assert one(make_tree(["a/1.jpg", "b/1.jpg", "README.md"])).warnings == ()


def test_images_without_class_folders_have_no_label(make_tree):
    source = one(make_tree(["10.jpg", "2.JPG", "notes.txt"]))
    assert (source.kind, source.classes) == ("flat", ())
    assert keys(source) == ["10.jpg", "2.JPG"]
    assert labels(source) == [-1, -1]
    assert source.warnings == ()


def test_folders_without_images_do_not_make_classes_of_a_flat_folder(make_tree):
    source = one(make_tree(["1.jpg", "annotations/1.txt"]))
    assert (source.kind, source.classes) == ("flat", ())
    assert [entry.key for entry in source.left_out] == ["annotations/1.txt"]


def test_hidden_folders_do_not_make_classes_of_a_flat_folder(make_tree):
    source = one(make_tree(["1.jpg", ".thumbs/1.jpg", ".thumbs/2.jpg"]))
    assert (source.kind, keys(source)) == ("flat", ["1.jpg"])
    assert [(entry.key, entry.is_clutter) for entry in source.left_out] == [
        (".thumbs/1.jpg", True),
        (".thumbs/2.jpg", True),
    ]


@pytest.mark.parametrize(
    "tree", [["README.md"], ["train/", "val/notes.txt"], ["a/", "b/notes.txt"], ["train/", "val/a/1.txt"]]
)
def test_folder_without_images_is_refused(make_tree, tree):
    with pytest.raises(SourceError, match=r"must hold images, .*got none among 1 file: check the path"):
        open_source(make_tree(tree))


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [
        ("train", "val", "test"),
        ("training", "valid", "testing"),
        ("Train", "VALIDATION", "Test"),
    ],
)
def test_splits_share_one_class_list(make_tree, train, val, test):
    tree = [
        f"{train}/b/1.jpg",
        f"{train}/c/1.jpg",
        f"{val}/a/1.jpg",
        f"{val}/c/1.jpg",
        f"{test}/b/1.jpg",
    ]
    sources = open_source(make_tree(tree))
    assert list(sources) == ["train", "val", "test"]
    assert {source.classes for source in sources.values()} == {("a", "b", "c")}
    assert [keys(source) for source in sources.values()] == [
        ["b/1.jpg", "c/1.jpg"],
        ["a/1.jpg", "c/1.jpg"],
        ["b/1.jpg"],
    ]
    assert [labels(source) for source in sources.values()] == [[1, 2], [0, 2], [1]]
    assert [source.read(0).image for source in sources.values()] == [
        f"{train}/b/1.jpg".encode(),
        f"{val}/a/1.jpg".encode(),
        f"{test}/b/1.jpg".encode(),
    ]
    assert "lacks classes that other splits have: 'b'" in sources["val"].warnings[0]


def test_split_without_class_folders_has_no_labels_but_the_class_list(make_tree):
    root = make_tree(["train/a/1.jpg", "train/b/1.jpg", "test/1.jpg", "test/2.jpg"])
    with pytest.raises(SourceError, match=r"labels are elsewhere, in 'test' .*--layout classes"):
        open_source(root)
    sources = open_source(root, layout="classes")
    assert labels(sources["test"]) == [-1, -1]
    assert sources["test"].classes == ("a", "b")
    assert "get the label -1" in sources["test"].warnings[0]


def test_splits_of_images_alone_have_no_classes(make_tree):
    sources = open_source(make_tree(["train/1.jpg", "val/1.jpg"]))
    assert [source.kind for source in sources.values()] == ["flat", "flat"]
    assert [source.warnings for source in sources.values()] == [(), ()]


def test_train_alone_is_a_split(make_tree):
    sources = open_source(make_tree(["train/a/1.jpg", ".git/"]))
    assert list(sources) == ["train"]
    assert sources["train"].classes == ("a",)


def test_train_among_other_classes_is_a_class(make_tree):
    assert one(make_tree(["train/1.jpg", "bus/1.jpg", "car/1.jpg"])).classes == ("bus", "car", "train")


def test_files_beside_splits_are_listed_with_the_first(make_tree):
    root = make_tree(
        ["train/a/1.jpg", "train/b.txt", "val/c.txt", "extra/x/1.jpg", "extra/1.txt", "x.jpg", ".git/x.jpg"]
    )
    sources = open_source(root)
    assert list(sources) == ["train"]
    assert sources["train"].warnings == (f"{root} has splits without images, which are left out: 'val'",)
    assert [(entry.key, entry.reason, entry.is_clutter) for entry in sources["train"].left_out] == [
        ("extra/x/1.jpg", "an image beside the splits", False),
        ("x.jpg", "an image beside the splits", False),
        ("extra/1.txt", "not an image", False),
        ("train/b.txt", "not an image", False),
        ("val/c.txt", "not an image", False),
        (".git/x.jpg", "hidden", True),
    ]


def test_fingerprint_follows_names_sizes_times_and_classes(make_tree, tmp_path):
    root = make_tree(["a/1.jpg", "b/1.jpg"])
    before = one(root).fingerprint()
    assert one(root).fingerprint() == before

    moved = root.rename(tmp_path / "moved")
    assert one(moved).fingerprint() == before

    seen = {before}
    time_ns = (moved / "a/1.jpg").stat().st_mtime_ns
    (moved / "a/1.jpg").write_bytes(b"longer than it was")
    os.utime(moved / "a/1.jpg", ns=(time_ns, time_ns))
    seen.add(one(moved).fingerprint())
    os.utime(moved / "a/1.jpg", ns=(1, 1))
    seen.add(one(moved).fingerprint())
    (moved / "a/1.jpg").rename(moved / "a/2.jpg")
    seen.add(one(moved).fingerprint())
    (moved / "c").mkdir()
    seen.add(one(moved).fingerprint())
    (moved / "b").rename(moved / "d")
    seen.add(one(moved).fingerprint())
    assert len(seen) == 6


def test_size_counts_all_files(make_tree):
    root = make_tree(["a/1.jpg", "b/22.jpg"])
    (root / "a/broken.jpg").symlink_to("nowhere")
    assert one(root).size_bytes() == len("a/1.jpg") + len("b/22.jpg")


def test_relative_folder_is_found_after_a_change_of_directory(make_tree, monkeypatch):
    root = make_tree(["a/1.jpg"])
    monkeypatch.chdir(root.parent)
    source = one("photos")
    monkeypatch.chdir("/")
    assert source.name == "photos"
    assert source.read(0).image == b"a/1.jpg"


def test_home_is_expanded_as_by_image_folder(make_tree, monkeypatch):
    root = make_tree(["a/1.jpg"])
    monkeypatch.setenv("HOME", str(root.parent))
    assert len(one("~/photos")) == 1


def test_a_folder_that_is_not_there_is_said_to_be_misspelt(tmp_path):
    with pytest.raises(SourceError, match="check its spelling"):
        FolderDataset(tmp_path / "photo")
