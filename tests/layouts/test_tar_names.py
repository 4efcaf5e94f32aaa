"""Names of members with several dots: the samples that they belong to."""

import io
import tarfile

import numpy as np
import pytest

from fastload import PackedDataset, pack, unpack
from fastload.errors import SourceError
from fastload.sources import open_source
from tests.layouts.containers import image, npy, write_tar


def one(path):
    [source] = open_source(path).values()
    return source


def tar_of(tmp_path, *names, start=0):
    """A tar of members of these names: images by their suffixes, else short texts."""

    def content(at, name):
        suffix = name[name.rfind(".") :].lower()
        if suffix in (".jpg", ".png", ".jpeg"):
            return image(at, suffix)
        return npy(np.full(2, at, np.float32)) if suffix == ".npy" else b"%d" % (at % 2)

    return write_tar(tmp_path / "x.tar", {name: content(at, name) for at, name in enumerate(names, start)})


def fields_of(source):
    return [field.name for field in source.fields if not field.internal]


NUMBERED = [f"{animal}s/{animal}.{number}.jpg" for animal in ("cat", "dog") for number in range(3)]
TIMES = [
    f"{name}/WhatsApp Image at {time}.jpg" for name in ("cats", "dogs") for time in ("10.11.12", "10.11.13")
]
VERSIONS = [f"{name}/v1.{number}_photo.png" for name in ("cats", "dogs") for number in range(4)]
ONE_MORE = ["cats/a.jpg", "cats/a.1.jpg", "cats/b.jpg", "dogs/c.jpg"]
PEOPLE = ["cats/j.smith.jpg", "cats/j.doe.jpg", "dogs/j.smith.jpg", "dogs/m.brown.jpg"]


@pytest.mark.parametrize("names", [NUMBERED, TIMES, VERSIONS, ONE_MORE, PEOPLE], ids=lambda names: names[-1])
def test_files_with_dots_in_class_folders_are_images_of_their_own(tmp_path, names):
    source = one(tar_of(tmp_path, *names))
    assert source.classes == ("cats", "dogs")
    assert fields_of(source) == ["label"]
    assert [source.key(at) for at in range(len(source))] == names
    assert [source.read(at).values["label"] for at in range(len(names))] == [
        int(name.startswith("dogs")) for name in names
    ]
    assert source.read(2).image == image(2, names[2][-4:])


def test_unpacking_gives_the_names_with_dots_again(tmp_path):
    path = tar_of(tmp_path, *NUMBERED)
    result = pack(path, tmp_path / "x.fl", encode="keep", workers=1)
    assert (result.records, result.classes) == (6, ("cats", "dogs"))
    unpack(tmp_path / "x.fl", tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "x.tar") as tar:
        assert tar.getnames() == NUMBERED


@pytest.mark.parametrize("parts", [("1.0", "1.1"), ("2024.05.17 a", "2024.05.17 b")])
def test_labels_and_texts_belong_to_the_image_with_the_same_dots(tmp_path, parts):
    names = [f"{part}.{suffix}" for part in parts for suffix in ("jpg", "cls", "caption.txt")]
    path = tar_of(tmp_path, *names)
    pack(path, tmp_path / "x.fl", encode="keep", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    assert [dataset[at][1] for at in range(2)] == [
        {"label": 1, "caption_txt": "0"},
        {"label": 0, "caption_txt": "1"},
    ]
    unpack(tmp_path / "x.fl", tmp_path / "out")
    with tarfile.open(tmp_path / "out" / "x.tar") as tar:
        assert sorted(tar.getnames()) == sorted(names)


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("names", "fields"),
    [
        (["a.jpg", "a.left.jpg", "a.cls", "b.jpg", "b.left.jpg", "b.cls"], ["label", "left_jpg"]),
        (["a.rgb.jpg", "a.height.npy", "b.rgb.jpg", "b.height.npy"], ["height_npy"]),
        (["a.0.jpg", "a.1.jpg", "a.cls", "b.0.jpg", "b.1.jpg", "b.cls"], ["label", "_1_jpg"]),
        (["a.embedding.npy", "b.embedding.npy"], ["embedding_npy"]),
        (["a.jpg", "a.extra.json", "b.jpg", "b.extra.json"], ["extra_json"]),
    ],
    ids=lambda value: value[0],
)
def test_samples_of_webdataset_keep_their_members(tmp_path, names, fields):
    source = one(tar_of(tmp_path, *names))
    assert len(source) == 2
    assert fields_of(source) == fields
    assert [source.key(at).partition(".")[0] for at in range(2)] == ["a", "b"]


@pytest.mark.frameworks("webdataset")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_keys_are_those_of_webdataset(tmp_path):
    import webdataset

    names = ["a.jpg", "a.left.jpg", "a.cls", "b.jpg", "b.left.jpg", "b.cls"]
    source = one(tar_of(tmp_path, *names))
    reader = webdataset.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False, empty_check=False)
    keys = [sample["__key__"] for sample in reader]
    assert [source.key(at).partition(".")[0] for at in range(2)] == keys == ["a", "b"]


@pytest.mark.parametrize(
    "names",
    [
        ["x/a.front.jpg", "x/a.back.jpg", "y/b.front.jpg", "y/b.back.jpg"],
        ["a.jpg", "a.1.jpg", "b.jpg", "b.1.jpg"],
    ],
    ids=["words", "numbers"],
)
def test_two_readings_are_refused_with_both_and_the_step(tmp_path, names):
    message = (
        r"x\.tar: '.*': must be a member in one reading, got two: \.\w+\.jpg of the sample '.*\.jpg of '.*"
    )
    with pytest.raises(SourceError, match=message + "unpack it .*pack the folder"):
        one(tar_of(tmp_path, *names))


def test_extensions_are_read_in_any_case_and_keys_keep_theirs(tmp_path):
    path = tar_of(tmp_path, "Ä/a.JPG", "Ä/a.CLS", "Ä/a.JSON", "B.JPG", "B.CLS", "B.JSON")
    source = one(path)
    assert fields_of(source) == ["label", "json"]
    assert [source.key(at) for at in range(2)] == ["Ä/a.JPG", "B.JPG"]
    assert [source.read(at).values["label"] for at in range(2)] == [1, 0]
    pack(path, tmp_path / "x.fl", encode="keep", workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    with tarfile.open(path) as theirs, tarfile.open(tmp_path / "out" / "x.tar") as mine:
        assert {each.name: mine.extractfile(each).read() for each in mine} == {
            each.name: theirs.extractfile(each).read() for each in theirs
        }


def test_two_members_that_differ_in_case_alone_are_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"sample 'a': must have one member \.cls, got a second"):
        one(tar_of(tmp_path, "a.jpg", "a.cls", "a.CLS"))


def test_other_files_beside_images_in_a_tar_are_listed(tmp_path):
    names = [*NUMBERED, "cats/._cat.0.jpg", ".DS_Store", "README.md", "notes about it.pdf", "cats/Thumbs.db"]
    source = one(tar_of(tmp_path, *names))
    assert len(source) == 6
    assert source.classes == ("cats", "dogs")
    left_out = {entry.key.removeprefix("x.tar/"): entry.is_clutter for entry in source.left_out}
    assert left_out == dict.fromkeys(names[6:], True) | {"notes about it.pdf": False}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train/cats/a.jpg", "train/dogs/b.jpg", "val/cats/c.jpg"], "folders of splits, 'train', 'val'"),
        (["images/a.jpg", "images/b.jpg", "masks/a.png", "masks/b.png"], "by the names 'images', 'masks'"),
        (["cats/x/a.jpg", "cats/y/b.jpg", "dogs/z/c.jpg"], "'cats' holds 'x', 'y'"),
        (["cats/a.jpg", "dogs/b.jpg", "c.jpg"], "'c.jpg' beside the folders 'cats', 'dogs'"),
    ],
    ids=["splits", "parts", "nested", "beside"],
)
def test_folders_in_a_tar_that_may_be_no_classes_are_refused(tmp_path, names, message):
    with pytest.raises(SourceError, match=rf"must hold images in class folders, .*{message}.*unpack the tar"):
        one(tar_of(tmp_path, *names))


def test_splits_of_which_one_has_class_folders_are_refused(tmp_path):
    write_tar(tmp_path / "d/x-train.tar", {f"{name}/{name}.jpg": image(0) for name in ("cat", "dog")})
    write_tar(tmp_path / "d/x-val.tar", {"1.jpg": image(1)})
    with pytest.raises(
        SourceError, match=r"class folders in the shards of every split or of none, got .*train"
    ):
        open_source(tmp_path / "d")


def test_hard_links_in_a_tar_are_listed(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        entry = tarfile.TarInfo("a.0.jpg")
        entry.size = len(image(0))
        tar.addfile(entry, io.BytesIO(image(0)))
        link = tarfile.TarInfo("a.1.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "a.0.jpg"
        tar.addfile(link)
    source = one(tmp_path / "x.tar")
    assert [(entry.key, entry.reason) for entry in source.left_out] == [
        ("x.tar/a.1.jpg", "a link or a device")
    ]
