"""Class folders are what remains: those that could mean something else are refused."""

import pytest

from fastload import FolderDataset, SourceError
from fastload.sources import open_source
from tests.sources.test_layouts import NUMBERS, many, photo, written

ORDINARY = {
    "faces": many("mask/{}.jpg", photo) | many("no_mask/{}.jpg", lambda at: photo(at + 50)),
    "classes counted each from 0": many("cat/{}.jpg", photo) | many("dog/{}.jpg", photo),
    "classes of one name each": many("a/x_{}.jpg", photo) | many("b/x_{}.jpg", photo),
    "a vehicle named like a split": many("bullet train/{}.jpg", photo) | many("bus/{}.jpg", photo),
    "one folder of one name in each class": many("a/images/{}.jpg", photo) | many("b/images/{}.jpg", photo),
    "a class that is empty but for a note": many("a/{}.jpg", photo)
    | {"b/notes.txt": "none yet", "labels/0.md": "x"},
    "texts of other things": many("a/{}.jpg", photo)
    | {"a/notes.txt": "1 2 3 4 5\n", "classes.txt": "a\nb\n"},
    "settings": many("a/{}.jpg", photo)
    | {"config.yaml": "train:\n  names: x\n", "metadata.csv": "class,n\na,4\n"},
    "json of other things": many("a/{}.jpg", photo)
    | {"numbers.txt": "1,2,3,4,5,6,7,8\n", "shop.json": '{"items": [1], "result": []}'}
    | {"info.json": '{"images": 4}', "class_to_idx.json": "{}"},
    "augmented images": many("a/{}.jpg", photo)
    | many("a/{}_flip.jpg", photo)
    | many("b/{}.jpg", photo)
    | many("b/{}_flip.jpg", photo),
    "the two eyes of each patient": many("a/p{}_left.jpg", photo)
    | many("a/p{}_right.jpg", photo)
    | many("b/q{}_left.jpg", photo)
    | many("b/q{}_right.jpg", photo),
    "classes of other sharpness": many("blurred/a{}x.jpg", photo) | many("sharp/q{}w.jpg", photo),
    "every third image in another split": {
        f"{'val' if at % 3 == 0 else 'train'}/{name}/{at}.jpg": photo(at) for name in "ab" for at in range(16)
    },
    "tracks of as many frames": {
        f"{name}/0000{track}_0000{at}.ppm": photo(at) for name in "ab" for track in NUMBERS for at in NUMBERS
    },
    "counted images of one size": many("a/{}_224.jpg", photo) | many("b/{}_224.jpg", photo),
    "means of transport": {
        f"{name}/{at}.jpg": photo(at) for name in ("bus", "car", "train") for at in NUMBERS
    },
    "images with two suffixes": many("a/{}_0_2017.jpg.chip.jpg", photo) | many("b/{}.jpg.chip.jpg", photo),
    "sides of limbs": many("left_arm/{}.jpg", photo)
    | many("left_leg/{}.jpg", lambda at: photo(at + 50))
    | many("right_arm/{}.jpg", photo),
    "as many images of the same names in each class": {
        f"{name}/{name}_{at}{end}.jpg": photo(at)
        for name in ("ant", "bee", "cow", "dog")
        for at in NUMBERS
        for end in ("", "_flip")
    },
    "a copy in each class": many("c{0}/{0}.jpg", photo) | many("c{0}/copy of {0}.jpg", photo),
    "numbered people": {f"{name:04d}/{at}.pgm": photo(at) for name in range(5) for at in NUMBERS},
    "lists of classes": many("a/{}.jpg", photo) | {"test.txt": "a\nb\n", "train.json": '["a", "b"]'},
    "a table of the images in each class": many("a/{}.jpg", photo)
    | many("b/{}.jpg", photo)
    | {f"{name}/t.csv": f"Filename;Width;ClassId\n0.jpg;4;{name}\n1.jpg;5;{name}\n" for name in "ab"},
    "a table of other things": many("a/{}.jpg", photo) | {"counts.csv": "class,images\na,3\nb,2\n"},
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_class_folders_are_not_refused(tmp_path, name, image_folder):
    root = written(tmp_path / "data", ORDINARY[name])
    if (root / "train" / "a").exists():
        assert [source.classes for source in open_source(root).values()] == [("a", "b")] * 2
    else:
        assert_class_folders(root, image_folder, None)


# Folders of pairs, which have the same numbers with gaps.
PAIRS = [
    ("raw", "enhanced"), ("low", "normal"), ("X2", "X4"), ("VV", "VH"), ("s1", "s2"), ("im1", "im2"),
    ("T1", "T2"), ("original", "segmented"), ("A", "B"), ("color", "normal", "albedo"),
    ("input", "expertA", "expertB"),
]  # fmt: skip


@pytest.mark.parametrize("pattern", ["{0}/{1}.png", "{0}/scene_{0}_img{1}.png", "{0}/90-{1}.png"])
@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_folders_with_the_same_numbers_that_are_no_count_are_pairs(tmp_path, names, pattern):
    tree = {pattern.format(name, at): photo(at % 9) for name in names for at in (17, 342, 991, 1204)}
    with pytest.raises(SourceError, match=r"pairs of images in .*--layout classes"):
        open_source(written(tmp_path / "data", tree))


def assert_class_folders(root, image_folder, layout):
    [source] = open_source(root, layout=layout).values()
    reference = image_folder(str(root), allow_empty=True)
    assert [source.files.path(index) for index in range(len(source))] == [
        path for path, _ in reference.samples
    ]
    assert FolderDataset(root, layout=layout).samples == reference.samples


# Folders that could be classes, the other reading, and the step that the message gives.
IN_DOUBT = {
    "parts": ("by the names 'images', 'masks'", "pack .*images DEST", ("images/x{}.jpg", "masks/m{}x.png")),
    "CUB-200": ("by the names 'images'", "pack .*images DEST", ("images/a/{}.jpg", "images/b/{}.jpg")),
    "LFW": ("'lfw' holds 'A', 'B'", "pack .*lfw DEST", ("lfw/A/A_{}.jpg", "lfw/B/B_{}.jpg")),
    "some nested": ("'b' holds 'x', 'y'", "pack .*b DEST", ("a/{}.jpg", "b/x/{}.jpg", "b/y/{}.jpg")),
    "years": ("splits, by the names", "pack .*train2017 DEST", ("train2017/a/{}.jpg", "val2017/a/{}.jpg")),
    "pix2pix": ("splits, by the names", "rename", ("trainA/{}.jpg", "trainB/{}.jpg", "testA/{}.jpg")),
    "depth": ("pairs of images in 'depth' and 'rgb'", "table", ("rgb/{}.png", "depth/{}.png")),
    "pairs": ("pairs of images in", "table", ("p/k{}.png", "q/k{}.png", "p/v.png", "q/v.png")),
    "one folder of a split": ("elsewhere, in .*val/all", "pack .*train DEST", (
        "train/a/{}.jpg", "train/b/{}.jpg", "val/all/{}.jpg")),
    "Tiny ImageNet": ("elsewhere, in .*val/images", "pack .*train DEST' makes classes", (
        "train/n1/images/{}.jpg", "train/n2/images/{}.jpg", "val/images/{}.jpg", "test/images/{}.jpg")),
    "Kaggle": ("splits, by the names 'test1', 'train'", "rename", ("train/{}.jpg", "test1/{}.jpg")),
    "one split": ("the images of one split", "pack .*val2017 DEST", ("val2017/{}.jpg",)),
    "re-identification": ("splits, by the names", "rename", (
        "bounding_box_train/{}.jpg", "bounding_box_test/{}.jpg", "query/{}.jpg")),
    "KITTI": ("by the names 'image_2', 'label_2'", "pack .*image_2 ", ("image_2/{}.png", "label_2/x{}.png")),
    "archives of parts": ("by the names 'images_001', 'images_002'", "pack", (
        "images_001/images/{}.png", "images_002/images/{}.png")),
    "LEVIR": ("pairs of images in 'A' and 'B'", "table", ("A/{}.png", "B/{}.png", "label/{}.png")),
    "two times": ("pairs of images in 'label' and 'time1'", "table", (
        "time1/{}.png", "time2/{}.png", "label/{}.png")),
    "resolutions": ("pairs of images in 'HR' and 'LR_x'", "table", ("HR/{}.png", "LR_x/{}x2.png")),
    "masks beside": ("masks beside them", "pack .*a DEST", ("a/{}.jpg", "a/{}_mask.jpg", "b/{}.jpg")),
    "a flat split": ("in 'val' .*are in 'train'", "pack .*train DEST", ("train/a/{}.jpg", "val/{}.jpg")),
    "one clear image of many hazy ones": ("pairs of images in 'clear' and 'hazy'", "table", (
        "clear/{}.png", "hazy/{}_1_0.8.png", "hazy/{}_2_1.png")),
    "rain": ("pairs of images in 'norain' and 'rain'", "table", ("rain/rain-{}.png", "norain/norain-{}.png")),
    "resolutions in one folder": ("in .*set, whose names differ in '_HR', '_LR'", "table", (
        "set/img_{}_HR.png", "set/img_{}_LR.png")),
    "lungs": ("by the names 'lung_masks'", "pack .*CXR DEST' packs .*without 'lung_masks'; .*rename", (
        "CXR/{}.png", "lung_masks/{}.png")),
    "colours and depth of scenes": ("whose names differ in '_colors', '_depth'", "table", (
        "s1/{}_colors.png", "s1/{}_depth.png", "s2/{}_colors.png", "s2/{}_depth.png")),
    "splits in a wrapper": ("'data' holds 'train', 'val'", "data DEST' packs its splits, 'train', 'val'", (
        "data/train/a/{}.jpg", "data/train/b/{}.jpg", "data/val/a/{}.jpg", "data/val/b/{}.jpg")),
    "SUN397": ("'s' holds 'a', 'b'", "columns path and label, if these are the classes", (
        "s/a/abbey/{}.jpg", "s/a/apse/outdoor/{}.jpg", "s/b/barn/{}.jpg")),
    "domains": ("'photo' holds 'dog', 'owl'", "pack .*photo DEST' makes .*'dog', 'owl', without 'sketch'", (
        "photo/dog/{}.jpg", "photo/owl/{}.jpg", "sketch/dog/{}.jpg", "sketch/owl/{}.jpg")),
    "masks by class": ("'a' holds 'images', 'masks'", "a DEST' packs a segmentation .*without 'b'", (
        "a/images/{}.png", "a/masks/{}.png", "b/images/{}.png", "b/masks/{}.png")),
    "Cityscapes": ("parts of one dataset", "train DEST' makes .*'jena', 'ulm', without 'gtFine'", (
        "leftImg8bit/train/ulm/{}_leftImg8bit.png", "leftImg8bit/train/jena/{}_leftImg8bit.png",
        "leftImg8bit/val/bonn/{}_leftImg8bit.png",
        "gtFine/train/ulm/{}_gtFine_labelIds.png", "gtFine/val/bonn/{}_gtFine_labelIds.png")),
    "a part of the training images": ("splits, by the names", "pack .*train_mini DEST", (
        "train_mini/a/{}.jpg", "val/a/{}.jpg")),
    "magnetic tiles": ("masks beside them in .*MT_A/Imgs", "pack .*MT_A/Imgs DEST", (
        "MT_A/Imgs/e{}.jpg", "MT_A/Imgs/e{}.png", "MT_B/Imgs/f{}.jpg", "MT_B/Imgs/f{}.png")),
    "retrieval without a test split": ("splits, by the names 'box_train', 'query'", "pack .*box_train DEST", (
        "box_train/{}_c1.jpg", "query/{}_c2.jpg")),
    "gallery": ("splits, by the names 'gallery', 'query', 'train'", "pack .*train DEST", (
        "train/{}_c1.jpg", "query/{}_c2.jpg", "gallery/{}_c3.jpg")),
    "boxes as images": ("by the names 'gt_bbox'", "pack .*box_train DEST' .*without 'box_test'", (
        "box_train/{}_c1.jpg", "box_test/{}_c2.jpg", "gt_bbox/{}_c3.jpg")),
    "two of three views": ("pairs of images in 'blur' and 'blur_gamma'", "table", (
        "blur/{}.png", "blur_gamma/{}.png", "sharp/{}.png")),
    "masks beside the folder of images": ("by the names 'images'", "alone, without 'task-0.png'", (
        "images/{}.jpg", "task-{}.png")),
    "noise": ("scenes, each with 'GT', 'NOISY' in a folder", "table", (
        "S{0}/S{0}_GT_010.PNG", "S{0}/S{0}_NOISY_010.PNG")),
    "noise, and two of each": ("names differ in '_GT', '_NOISY'", "table", (
        "S{0}/{0}_GT_RGB_1.PNG", "S{0}/{0}_GT_RGB_2.PNG", "S{0}/{0}_NOISY_RGB_1.PNG",
        "S{0}/{0}_NOISY_RGB_2.PNG")),
    "the two images of each scene": ("scenes, each with 'left', 'right' in a folder", "table", (
        "s{}/left.png", "s{}/right.png")),
    "numbered images and depth": ("scenes, each with 'disp2', 'disp6', 'im2', 'im6'", "table", (
        "s{}/im2.png", "s{}/im6.png", "s{}/disp2.png", "s{}/disp6.png")),
    "bands": ("scenes, each with 'B01', 'B02', 'B8A' in a folder", "table", (
        "S2A_{0}/S2A_{0}_B01.tif", "S2A_{0}/S2A_{0}_B02.tif", "S2A_{0}/S2A_{0}_B8A.tif")),
    "frames": ("frames of videos or scenes, by the names 'seq_00'", "columns path and label", (
        "seq_0{}/1.jpg", "seq_0{}/2.jpg")),
    "CT and MR": ("pairs of images in 'CT' and 'MR'", "table", ("CT/{}.png", "MR/{}.png")),
    "cameras in folders": ("pairs of images in 'cam0'", "table", ("cam0/{}.png", "cam1/{}.png")),
    "bands of a satellite": ("'AOI' holds 'MUL', 'PS-RGB' .pairs of images in", "table", (
        "AOI/PS-RGB/SN3_AOI_PS-RGB_img{}.tif", "AOI/MUL/SN3_AOI_MUL_img{}.tif")),
    "bands in other words": ("pairs of images in 'MUL' and 'PS-RGB'", "table", (
        "PS-RGB/x_RGB_{}.tif", "MUL/x_MUL_{}.tif")),
    "names without numbers": ("pairs of images in 'p' and 'q'", "table", (
        "p/baby.png", "p/bird.png", "p/head.png", "q/baby.png", "q/bird.png", "q/head.png")),
    "nnU-Net": ("by the names 'imagesTr', 'imagesTs', 'labelsTr'", "pack .*imagesTr DEST", (
        "imagesTr/c_{}_0000.png", "imagesTs/t_{}_0000.png", "labelsTr/c_{}.png")),
    "faces with masks": ("pairs of images in 'face' and 'face mask'", "table", (
        "arm/{}.png", "face/{}.png", "face mask/{}.png")),
    "colours and depth": ("by the names 'depth_image'", "pack .*color DEST", (
        "color/{}.png", "depth_image/{}.png")),
    "white blood cells": ("pairs of images in 'white' and 'white_label'", "rename", (
        "white/{}.png", "white_label/{}.png")),
    "held out": ("splits, by the names 'holdout', 'train'", "pack .*train DEST", (
        "train/{}.jpg", "holdout/h{}.jpg")),
    "without labels": ("splits, by the names 'labeled', 'unlabeled'", "rename", (
        "labeled/{}.jpg", "unlabeled/u{}.jpg")),
    "a test beside another folder": ("splits, by the names 'other', 'test'", "rename", (
        "test/{}.jpg", "other/o{}.jpg")),
    "parts of one split": ("splits, by the names 'train_A', 'train_B'", "rename", (
        "train_A/{}.png", "train_B/{}.png")),
    "MVTec": ("annotations of the splits in 'ground_truth'", "table", (
        "train/good/{}.png", "test/good/{}.png", "test/bent/{}.png", "ground_truth/bent/{}x_mask.png")),
}  # fmt: skip


# Names that say nothing of parts, views or splits, though words in them might.
CLASSES = [
    ["box", "bag", "bottle"], ["cardboard box", "plastic bag"], ["ann", "bob"], ["Mustang GT", "Ford GT"],
    ["food labels", "clothing labels"], ["freight train", "passenger train"], ["crash test", "fire test"],
    ["normal", "pneumonia"], ["alpha", "beta", "gamma"], ["clear", "cloudy", "hazy", "rainy"], ["A", "B"],
    ["edge", "center", "corner"], ["shot put", "video game"],
    ["clip", "scene"], ["gt500", "mustang"], ["valid", "invalid"],
    ["low", "normal", "high"], ["mask", "no_mask"], ["with_mask", "without_mask"], ["only"],
]  # fmt: skip


@pytest.mark.parametrize("names", CLASSES, ids="-".join)
def test_classes_with_such_words_are_classes(tmp_path, names, image_folder):
    root = written(tmp_path / "data", {f"{name}/{at}.jpg": photo(at) for name in names for at in NUMBERS})
    written(root, {"classes.csv": "id,name\n0,a\n1,b\n"})
    assert_class_folders(root, image_folder, None)


def test_commands_in_messages_can_be_copied(tmp_path):
    root = written(
        tmp_path / "data", {f"plant village/{c}/{at}.jpg": photo(at) for c in "ab" for at in NUMBERS}
    )
    with pytest.raises(SourceError, match=r"fastload pack '.*plant village' DEST makes"):
        open_source(root)


def test_labels_of_licence_plates_are_no_licence(tmp_path):
    tree = {"a/1.jpg": photo(0), "license_plates.json": "{}", "LICENSE": "x", "LICENSE-MIT.txt": "x"}
    [source] = open_source(written(tmp_path / "data", tree)).values()
    assert [entry.key for entry in source.left_out if not entry.is_clutter] == ["license_plates.json"]


@pytest.mark.parametrize("name", IN_DOUBT)
def test_class_folders_in_doubt_are_refused_until_the_layout_is_named(tmp_path, name, image_folder):
    reading, step, patterns = IN_DOUBT[name]
    root = written(
        tmp_path / "data", {path: data for each in patterns for path, data in many(each, photo).items()}
    )
    for refuse in (open_source, FolderDataset):
        with pytest.raises(
            SourceError, match=rf"two readings: .*{reading}.*{step}.*--layout classes"
        ) as caught:
            refuse(root)
        assert "layout='classes'" in str(caught.value)
    if len(open_source(root, layout="classes")) == 1:
        assert_class_folders(root, image_folder, "classes")


# Images alone that belong together by their names, and the words in which these differ.
VERSIONS = {
    "retina": ("'', '_1stHO', '_2ndHO'", ("Image_0{}L.jpg", "Image_0{}L_1stHO.png", "Image_0{}L_2ndHO.png")),
    "street": ("'', '_L'", ("0001TP_{}.png", "0001TP_{}_L.png")),
    "rooms": ("'_colors', '_depth'", ("{}_colors.png", "{}_depth.png")),
    "cameras": ("'left_', 'right_'", ("left_{}.png", "right_{}.png")),
    "noise": ("'_GT', '_NOISY'", ("{}_GT_010.png", "{}_NOISY_010.png")),
    "hands": ("'depth_', 'rgb_'", ("rgb_1_{}.png", "depth_1_{}.png")),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_several_images_of_each_thing_in_one_folder_are_refused(tmp_path, name):
    words, patterns = VERSIONS[name]
    tree = {path: data for each in patterns for path, data in many(each, photo).items()}
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=rf"images without labels, or several images .* {words}: .*table"):
        open_source(root)
    assert len(open_source(root, layout="classes")[""]) == len(tree)


def test_names_that_begin_with_classes_are_not_versions(tmp_path):
    for start in ("", "train."):
        tree = many(f"{start}cat.{{}}.jpg", photo) | many(f"{start}dog.{{}}.jpg", photo)
        assert len(open_source(written(tmp_path / f"{start}data", tree))[""]) == 8


def test_no_command_is_named_that_would_fail_at_images_without_a_mask(tmp_path):
    ends = (".jpg", "_seg.png", "_parts_1.png")
    tree = {f"images/ADE/train/{name}/ADE_1{end}": photo(0) for name in ("abbey", "barn") for end in ends}
    with pytest.raises(SourceError, match=r"by the names 'images': write a table") as caught:
        open_source(written(tmp_path / "data", tree))
    assert "fastload pack" not in str(caught.value)


def test_disparities_beside_the_images_of_each_scene_are_refused(tmp_path):
    files = ("im0.png", "im1.png", "calib.txt", "disp0.pfm")
    tree = {f"{scene}/{name}": photo(0) if ".png" in name else "x" for scene in "ab" for name in files}
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=r"scenes, each with 'calib', 'disp0', 'im0', 'im1' .*table"):
        open_source(root)
    assert len(open_source(root, layout="classes")[""]) == 4


@pytest.mark.parametrize("suffix", ["", ".jpg"])
@pytest.mark.parametrize("place", ["", "meta/"])
def test_lists_of_splits_beside_class_folders_are_refused(tmp_path, place, suffix):
    train, test = (
        "".join(f"{name}/{at}{suffix}\n" for name in ("pie", "rib") for at in some) for some in ("012", "3")
    )
    json = '{"pie": ["pie/3"], "rib": ["rib/3"]}'
    tree = many("pie/{}.jpg", photo) | many("rib/{}.jpg", photo)
    tree |= {f"{place}train.txt": train, f"{place}test.txt": test, f"{place}val.json": json}
    root = written(tmp_path / "data", tree)
    lists = ", ".join(f"'{place}{name}'" for name in ("test.txt", "train.txt", "val.json"))
    with pytest.raises(
        SourceError, match=f"splits, by the lists {lists} of images: .* path and label for each"
    ):
        open_source(root)
    assert len(open_source(root, layout="classes")[""]) == 8
