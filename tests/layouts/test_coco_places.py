"""COCO's jsons and folders of images in all their places; two readings are refused."""

import json

import pytest

from fastload import PackedDataset, SourceError, pack, unpack
from fastload.cli.main import main
from fastload.sources import open_source
from tests.layouts.samples import coco, coco_content, photo, written


def test_captions_are_texts(tmp_path):
    content = coco_content()
    for annotation in content["annotations"]:
        annotation["caption"] = f"object {annotation['id']}"
        for name in set(annotation) - {"id", "image_id", "caption"}:
            del annotation[name]
    del content["categories"]
    root = coco(tmp_path / "data", content)
    pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    assert [dataset[at][1]["captions"] for at in range(3)] == [["object 7"], ["object 1", "object 5"], []]
    assert "boxes" not in dataset[0][1]


def test_splits_of_folders_with_a_json_each(tmp_path):
    content = coco_content()
    tree = {f"{split}/{name}.jpg": photo(1) for split in ("train", "valid") for name in "abc"}
    jsons = {f"{split}/_annotations.coco.json": json.dumps(content) for split in ("train", "valid")}
    found = open_source(written(tmp_path / "data", tree | jsons))
    assert [(split, source.key(0)) for split, source in found.items()] == [
        ("train", "train/a.jpg"),
        ("val", "valid/a.jpg"),
    ]


def test_names_with_backslashes_are_paths(tmp_path):
    content = coco_content()
    for image in content["images"]:
        image["file_name"] = f"val2017\\{image['file_name']}"
    [source] = open_source(coco(tmp_path / "data", content)).values()
    assert source.read(0).key == "val2017/a.jpg"


def test_images_that_the_json_does_not_list_are_told(tmp_path):
    root = coco(tmp_path / "data")
    written(
        root, {"val2017/d.jpg": photo(4), "val2017/notes.txt": "", "test2017/a.jpg": photo(5), "README": ""}
    )
    [source] = open_source(root).values()
    assert [(each.key, each.reason, each.is_clutter) for each in source.left_out] == [
        ("test2017/a.jpg", "an image that no json lists", False),
        ("val2017/d.jpg", "an image that no json lists", False),
        ("val2017/notes.txt", "not part of the dataset", False),
        ("README", "about the dataset", True),
    ]
    assert source.warnings[-1].endswith("does not list 2 images, such as val2017/d.jpg")
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--quiet"]) == 1


def test_further_jsons_beside_instances_are_left_out_and_named(tmp_path):
    root = coco(tmp_path / "data")
    further = {f"annotations/{name}_val2017.json": "{}" for name in ("captions", "person_keypoints")}
    written(root, {name: json.dumps(coco_content()) for name in further})
    [source] = open_source(root).values()
    assert [each.key for each in source.left_out if not each.is_clutter] == [*further]
    assert all(f"{name} is not packed; name it" in " ".join(source.warnings) for name in further)
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--quiet"]) == 1
    assert main(["pack", str(root / next(iter(further))), str(tmp_path / "y.fl"), "--quiet"]) == 0


# Files beside those of `coco(...)`, which lie in val2017/, and the folder in which the images are found.
PLACES = {
    "a folder that the json names": ({f"train2017/{name}.jpg": photo(7) for name in "abc"}, "val2017"),
    "a folder with some of them": ({f"some/{name}.jpg": photo(7) for name in "ab"}, "val2017"),
    "the split that the json names": (
        {f"{folder}/{name}.jpg": photo(7) for folder in ("images/val", "images/train") for name in "abc"},
        "images/val",
    ),
    "none that the json names": (
        {f"{folder}/{name}.jpg": photo(7) for folder in ("large", "small") for name in "abc"},
        None,
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_images_are_found_by_their_names_or_two_places_are_refused(tmp_path, name):
    further, place = PLACES[name]
    root = written(coco(tmp_path / "data"), further)
    if place != "val2017":
        (root / "val2017").rename(tmp_path / "elsewhere")
    if place is None:
        with pytest.raises(
            SourceError, match="images in one folder, got some in 'large' and in 'small': move"
        ):
            open_source(root)
    else:
        [source] = open_source(root).values()
        assert source.read(0).key == f"{place}/a.jpg"
        assert source.read(0).image == (photo(7) if place == "images/val" else photo(0))


@pytest.mark.parametrize(
    ("lacking", "complete", "error"),
    [
        ("train", "val", r"train/c.jpg: must be a file that can be read"),
        ("images/train2017", "thumbs", r"images/train2017/c.jpg: must be a file that can be read"),
        ("images", "train", None),
        ("other", "val", r"other/c.jpg: must be a file that can be read"),
        ("images", "thumbs", r"in one folder, got some in '.*images' and in '.*thumbs': move"),
    ],
)
def test_a_folder_with_more_images_is_no_better_than_one_named_like_the_json(
    tmp_path, lacking, complete, error
):
    tree = {f"{lacking}/{name}.jpg": photo(1) for name in "ab"}
    tree |= {f"{complete}/{name}.jpg": photo(2) for name in "abc"}
    root = written(tmp_path / "data", tree | {"annotations/train.json": json.dumps(coco_content())})
    for at, source in enumerate((root, root / "annotations/train.json")):
        if error:
            with pytest.raises(SourceError, match=error):
                pack(source, tmp_path / f"{at}.fl", encode="keep", workers=1)
        else:
            [packed] = open_source(source).values()
            assert packed.read(0).image == photo(2)


def test_the_images_of_another_split_are_never_taken(tmp_path):
    tree = {f"val/{name}.jpg": photo(2) for name in "abc"}
    root = written(tmp_path / "data", tree | {"annotations/train.json": json.dumps(coco_content())})
    with pytest.raises(SourceError, match=r"in a folder near it, got none .*move it there"):
        open_source(root)


def listing_images(root, jsons, further=()):
    """Write jsons that list images by the letters of their names, and `further` jsons without annotations."""
    tree = {}
    for path, letters in jsons.items():
        tree |= {f"images/{letter}.jpg": photo(ord(letter)) for letter in letters}
        content = {
            "images": [{"id": ord(letter), "file_name": f"{letter}.jpg"} for letter in letters],
            "categories": [{"id": 1, "name": "ship"}],
        }
        if path not in further:
            content["annotations"] = [
                {"id": ord(letter), "image_id": ord(letter), "category_id": 1, "bbox": [1, 2, 3, 4]}
                for letter in letters
            ]
        tree[f"annotations/{path}.json"] = json.dumps(content)
    return written(root, tree)


SPLITS = {
    "minival beside val": {"val": "instances_val2014", "minival2014": "instances_minival2014"},
    "trainval beside test": {"test": "instances_test", "trainval": "instances_trainval"},
    "by the word alone": {"val": "coco_validation", "test": "retrain_test"},
}


@pytest.mark.parametrize("name", SPLITS)
def test_jsons_are_splits_by_the_words_of_their_names(tmp_path, name):
    expected = {split: f"annotations/{each}.json" for split, each in SPLITS[name].items()}
    root = listing_images(tmp_path / "data", dict(zip(SPLITS[name].values(), ("abc", "def"), strict=True)))
    sources = open_source(root)
    assert [(split, source.details["file"]) for split, source in sources.items()] == [*expected.items()]


@pytest.mark.parametrize(
    ("jsons", "repeated"),
    [
        ({"train2017": "abc", "test2017": "de", "train_test2017": "abcde"}, ["train_test2017"]),  # HRSID
        ({"instances_train": "abc", "instances_val": "de", "instances_minival": "e"}, ["instances_minival"]),
        ({"train": "abc", "valminusminival": "d", "minival": "e", "trainval35k": "abcd"}, ["trainval35k"]),
        ({"train": "abc", "val": "de", "trainval": "abcde", "minival": "d"}, ["trainval", "minival"]),
        ({"val": "abc", "test": "abc"}, []),
    ],
)
def test_jsons_of_images_that_others_list_are_left_out(tmp_path, jsons, repeated):
    root = listing_images(tmp_path / "data", jsons)
    sources = open_source(root)
    packed = {f"annotations/{name}.json" for name in jsons if name not in repeated}
    assert {source.details["file"] for source in sources.values()} == packed
    first, *_ = sources.values()
    why = "a COCO json of images that other jsons list, which is packed if it is named"
    assert {each.key: (each.reason, each.is_clutter) for each in first.left_out} == {
        f"annotations/{name}.json": (why, False) for name in repeated
    }
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--quiet"]) == bool(repeated)


def test_a_split_that_a_json_of_two_splits_repeats_is_refused(tmp_path):
    root = listing_images(tmp_path / "data", {"trainval": "abcde", "val": "de"})
    with pytest.raises(SourceError, match=r"val.json: must list images .* 'fastload pack .*/trainval.json D"):
        open_source(root)


def test_images_of_a_test_need_no_annotations(tmp_path):
    jsons = {"train": "abc", "image_info_test": "de"}
    root = listing_images(tmp_path / "data", jsons, further=["image_info_test"])
    train, test = open_source(root).values()
    assert [len(test.read(at).values["boxes"]) for at in (0, 1)] == [0, 0]
    assert train.warnings[0].endswith("image_info_test.json: none of its images has an annotation")
    for source in (root, root / "annotations/image_info_test.json"):
        assert main(["pack", str(source), str(tmp_path / f"{source.stem}.fl"), "--quiet"]) == 0
    root = listing_images(tmp_path / "more", {"train": "abc", "val": "de"}, further=["val"])
    [doubt] = open_source(root)["train"].doubts
    assert "add them; or if no image has objects, say --layout coco" in doubt
    assert main(["pack", str(root), str(tmp_path / "m.fl"), "--quiet"]) == 1
    assert main(["pack", str(root), str(tmp_path / "n.fl"), "--quiet", "--layout", "coco"]) == 0


@pytest.mark.parametrize("folder", ["images", "images/default"])
def test_exports_of_cvat_and_datumaro_are_read(tmp_path, folder):
    root = listing_images(tmp_path / "data", {"instances_default": "abc"})
    (root / "images").rename(tmp_path / "images")
    (root / folder).parent.mkdir(exist_ok=True)
    (tmp_path / "images").rename(root / folder)
    [source] = open_source(root).values()
    assert [source.key(at) for at in range(3)] == [f"{folder}/{name}.jpg" for name in "abc"]
    assert source.account.left_out == 0


@pytest.mark.parametrize(
    "names",
    [("a", "b"), ("labels", "labels_test"), ("val", "valid"), ("captions_val", "person_keypoints_val")],
)
def test_two_jsons_of_one_split_are_refused(tmp_path, names):
    jsons = {f"{each}.json": json.dumps(coco_content()) for each in names}
    root = written(tmp_path / "data", jsons | {f"images/{each}.jpg": photo(1) for each in "abc"})
    step = rf"pack one of them: 'fastload pack .*{names[0]}.json DEST'"
    found = rf"got .*{names[0]}.json and .*{names[1]}.json: {step}"
    with pytest.raises(SourceError, match=f"one json for each split, {found}"):
        open_source(root)


def test_panoptic_segments_are_refused_by_name(tmp_path):
    content = coco_content()
    segments = [{"id": 5, "category_id": 18, "area": 9, "bbox": [0, 0, 3, 3], "iscrowd": 0}]
    content["annotations"] = [{"image_id": 9, "file_name": "b.png", "segments_info": segments}]
    with pytest.raises(SourceError, match=r"boxes or captions, got panoptic segments \(segments_info\)"):
        open_source(coco(tmp_path / "data", content))


def test_labels_of_whole_images_are_refused_with_the_step(tmp_path):
    content = coco_content()
    content["annotations"] = [{"id": 1, "image_id": 9, "category_id": 18}]
    with pytest.raises(SourceError, match=r"labels of whole images: write a table .*--layout classes"):
        open_source(coco(tmp_path / "data", content))


def test_members_without_a_value_come_back(tmp_path):
    content = coco_content()
    content["annotations"][0] |= {"segmentation": None, "area": None, "iscrowd": None, "caption": "hi"}
    pack(coco(tmp_path / "data", content), tmp_path / "x.fl", encode="keep", workers=1)
    unpack(tmp_path / "x.fl", tmp_path / "out")
    back = json.loads((tmp_path / "out/annotations/instances_val2017.json").read_text())
    assert back["annotations"][0] == content["annotations"][0]


def test_an_annotation_without_a_box_is_no_caption(tmp_path):
    content = coco_content()
    content["annotations"] = [{"id": 1, "image_id": content["images"][0]["id"], "category_id": 1, "area": 3}]
    with pytest.raises(SourceError, match="annotation 1: must have a list of numbers as bbox"):
        pack(coco(tmp_path / "data", content), tmp_path / "x.fl", workers=1)
