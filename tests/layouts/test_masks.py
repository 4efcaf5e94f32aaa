"""Images with a mask each: names that belong together, splits, what is left out or refused."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from fastload import PackedDataset, SourceError, pack
from fastload.cli.main import main
from fastload.sources import open_source
from tests.folders import encoded, pixels
from tests.layouts.conformance import LayoutConformance
from tests.layouts.samples import SIZE, mask, masks, photo, written


def gif(number):
    """A mask of classes 1 and 2, as GIF."""
    levels = np.ones(SIZE, np.uint8)
    levels[5:20, 5 + number : 30] = 2
    data = io.BytesIO()
    Image.fromarray(levels).save(data, "GIF")
    return data.getvalue()


def tree_of(*patterns, numbers=range(3), **others):
    """Files of patterns such as `images/{}.jpg`; those that say masks are masks."""
    words = ("mask", "label", "annot", "gt", "seg", "trimap", "truth", "y_", "y/", "_l")
    tree = {}
    for pattern in patterns:
        make = (
            gif
            if pattern.endswith("gif")
            else mask
            if any(word in pattern.lower() for word in words)
            else photo
        )
        tree |= {pattern.format(number): make(number) for number in numbers}
    return tree | others


class TestMasks(LayoutConformance):
    def make(self, root):
        return masks(root)


class TestMasksBySplit(LayoutConformance):
    def make(self, root):
        splits = {"train": 0, "val": 3}
        tree = {
            f"{k}/images/{at}.jpg": photo(at) for k, first in splits.items() for at in range(first, first + 3)
        }
        tree |= {
            f"{k}/masks/{at}.png": mask(at) for k, first in splits.items() for at in range(first, first + 3)
        }
        return written(root, tree)


class TestMasksBesideImages(LayoutConformance):
    unclaimed = ("notes.docx", "extra/deep/data.bin")  # any image should have a mask

    def make(self, root):
        tree = {f"{at}.jpg": photo(at) for at in range(3)}
        return written(root, tree | {f"{at}_mask.png": mask(at) for at in range(3)})


class TestMasksOfPets(LayoutConformance):
    def make(self, root):
        return written(root, tree_of("images/{}.jpg", "annotations/trimaps/{}.png"))


class TestMasksBesideSplits(LayoutConformance):
    def make(self, root):
        return written(root, tree_of("train/{}.jpg", "trainannot/{}.png", "val/{}.jpg", "valannot/{}.png"))


WHOLE = {"": 3}
SPLIT = {"train": 3, "val": 3}

# Patterns of files, and the records of each split; every record has the mask of its number.
LAYOUTS = {
    "masks": (("images/{}.jpg", "masks/{}.png"), WHOLE),
    "nested": (("images/a/{}.jpg", "images/b/{}.jpg", "masks/a/{}.png", "masks/b/{}_mask.png"), {"": 6}),
    "capitals": (("JPEGImages/{}.JPG", "Ground Truth/{}.PNG"), WHOLE),
    "an ending of the masks": (("imgs/{}.jpg", "labels/{}_L.png"), WHOLE),
    "an ending of a lesion": (("images/i{}.jpg", "gt/i{}_lesion.png"), WHOLE),
    "an ending in the folder's name": (("cars/c{}.jpg", "cars-masks/c{}.png"), WHOLE),
    "gif": (("images/{}.jpg", "masks/{}_mask.gif"), WHOLE),
    "gif beside": (("{}.jpg", "{}_mask.gif"), WHOLE),
    "trimaps": (("images/{}.jpg", "annotations/trimaps/{}.png"), WHOLE),
    "beside": (("{}.jpg", "{}-seg.png"), WHOLE),
    "beside, of the same names": (("{}.jpg", "{}.png"), WHOLE),
    "beside, of two endings": (("{}_sat.jpg", "{}_mask.png"), WHOLE),
    "of two endings": (("images/{}_train.png", "masks/{}_manual.png"), WHOLE),
    "words without a mark": (("ShadowImages/{}.jpg", "ShadowMasks/{}.png"), WHOLE),
    "pedestrians": (("PNGImages/Ped{}.jpg", "PedMasks/Ped{}_mask.png"), WHOLE),
    "an original": (("Original/{}.jpg", "Ground Truth/{}.png"), WHOLE),
    "a folder beside loose images": (("{}.jpg", "masks/{}.png"), WHOLE),
    "splits by name": (("train/{}.jpg", "trainannot/{}.png", "val/{}.jpg", "valannot/{}.png"), SPLIT),
    "splits by name, labels": (
        ("train/{}.jpg", "train_labels/{}.png", "valid/{}.jpg", "valid_labels/{}.png"),
        SPLIT,
    ),
    "splits by name, before": (
        ("images_train/{}.jpg", "masks_train/{}.png", "images_val/{}.jpg", "masks_val/{}.png"),
        SPLIT,
    ),
    "splits by letters": (("x_train/{}.jpg", "y_train/{}.png", "x_val/{}.jpg", "y_val/{}.png"), SPLIT),
    "splits outside": (
        ("train/images/{}.jpg", "train/masks/{}.png", "val/images/{}.jpg", "val/masks/{}.png"),
        SPLIT,
    ),
    "splits outside, beside": (
        ("train/{}.jpg", "train/{}_gt.png", "validation/{}.jpg", "validation/{}_gt.png"),
        SPLIT,
    ),
    "splits inside": (
        (
            *("images/training/{}.jpg", "annotations/training/{}.png"),
            *("images/validation/{}.jpg", "annotations/validation/{}.png"),
        ),
        SPLIT,
    ),
    "splits inside, of two names": (
        ("images/training/{}.jpg", "masks/train/{}.png", "images/val/{}.jpg", "masks/valid/{}.png"),
        SPLIT,
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_image_has_the_mask_of_its_name(tmp_path, name):
    patterns, expected = LAYOUTS[name]
    tree = tree_of(*patterns)
    if name == "beside, of the same names":
        tree |= {f"{number}.png": mask(number) for number in range(3)}
    root = written(tmp_path / "data", tree)
    sources = open_source(root)
    assert {split: len(source) for split, source in sources.items()} == expected
    account = next(iter(sources.values())).account
    records = sum(expected.values())
    assert (account.files, account.records, account.annotations) == (2 * records, 2 * records, 0)
    for source in sources.values():
        for at in range(len(source)):
            record = source.read(at)
            number = int("".join(filter(str.isdigit, record.key)))
            suffix = patterns[1].rpartition(".")[2]
            assert record.values["mask"] == (gif(number) if suffix == "gif" else mask(number))


def test_texts_beside_folders_of_images_and_masks_are_listed(tmp_path):
    tree = tree_of("PNGImages/Ped{}.jpg", "PedMasks/Ped{}_mask.png")
    root = written(tmp_path / "data", tree | {f"Annotation/Ped{at}.txt": "# PASCAL 1.00" for at in range(3)})
    [source] = open_source(root).values()
    assert (source.kind, len(source), len(source.left_out)) == ("masks", 3, 3)


@pytest.mark.parametrize("name", ["microscopy", "crack"])
def test_grey_images_are_images(tmp_path, name):
    level = {"microscopy": 6, "crack": 128}[name]
    images = {f"images/{at}.png": encoded(np.full(SIZE, level + at, np.uint8), ".png") for at in range(6)}
    root = written(tmp_path / "data", images | {f"masks/{at}.png": mask(at) for at in range(6)})
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--quiet"]) == 0
    dataset = PackedDataset(tmp_path / "x.fl")
    assert (len(dataset), set(dataset[5][1])) == (6, {"mask"})


def test_grey_levels_of_a_gif_are_classes(tmp_path):
    root = written(tmp_path / "data", tree_of("images/{}.jpg", "masks/{}_mask.gif"))
    pack(root, tmp_path / "x.fl", encode="keep", workers=1)
    assert PackedDataset(tmp_path / "x.fl")[0][1]["mask"].unique().tolist() == [1, 2]


def test_colours_of_a_gif_are_refused_with_the_reason(tmp_path):
    data = io.BytesIO()
    Image.fromarray(pixels(0, *SIZE)).quantize(8).save(data, "GIF")
    root = written(
        tmp_path / "data", tree_of("images/{}.jpg") | {f"masks/{at}.gif": data.getvalue() for at in range(3)}
    )
    with pytest.raises(SourceError, match=r"masks/0\.gif: .*colours must be converted"):
        pack(root, tmp_path / "x.fl", workers=1)


# Patterns of files, and the two readings that the sentence names.
REFUSED = {
    "two folders of masks": (("images/{}.jpg", "masks/{}.png", "labels/{}.png"), "'labels' or 'masks'"),
    "two folders of masks in one": (
        ("images/{}.jpg", "annotations/trimaps/{}.png", "annotations/masks/{}.png"),
        "'annotations/masks' or 'annotations/trimaps'",
    ),
    "two folders of images": (("images/{}.jpg", "photos/{}.jpg", "masks/{}.png"), "'masks' or 'photos'"),
    "a third folder of the same names": (
        ("images/{}.jpg", "masks/{}.png", "depth/{}.png"),
        "'masks' or 'depth'",
    ),
    "a third folder, by split": (
        ("train/images/{}.jpg", "train/masks/{}.png", "train/depth/{}.png"),
        "'train/masks' or 'train/depth'",
    ),
    "two datasets": (
        ("a/{}.jpg", "a_masks/{}.png", "b/b{}.jpg", "b_masks/b{}.png"),
        "'a' with 'a_masks' and 'b' with 'b_masks'",
    ),
    "two masks of one image": (("images/{}.jpg", "masks/{}_mask.png", "masks/{}_gt.png"), "0_gt.png too"),
    "the field of view of a retina": (
        ("images/{}_training.png", "1st_manual/{}_manual1.gif", "mask/{}_training_mask.gif"),
        "'mask' or '1st_manual'",
    ),
    "two images of one mask": (("images/{}.jpg", "images/{}.bmp", "masks/{}.png"), "0.bmp too"),
    "splits under other names": (
        ("images/train_1/{}.jpg", "masks/train_1/{}.png", "images/val_1/{}.jpg", "masks/val_1/{}.png"),
        "splits named train, val and test, got 'train_1', 'val_1'",
    ),
    "splits twice": (
        ("val/{}.jpg", "val_masks/{}.png", "valid/{}.jpg", "valid_masks/{}.png"),
        "'val' and 'valid'",
    ),
    "masks beside images of classes": (
        ("benign/{}.jpg", "benign/{}_mask.png", "normal/n{}.jpg"),
        "classes, or images with masks beside them in .*benign",
    ),
    "masks of classes, beside splits": (
        ("train/good/{}.png", "test/good/{}.png", "test/broken/{}.png", "ground_truth/broken/{}_mask.png"),
        "annotations of the splits in 'ground_truth'",
    ),
    "masks under other names": (("images/{}.jpg", "masks/m{}.png"), "the names 'images', 'masks'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_two_readings_are_refused_by_name(tmp_path, name):
    patterns, message = REFUSED[name]
    with pytest.raises(SourceError, match=message):
        open_source(written(tmp_path / "data", tree_of(*patterns)))


@pytest.mark.parametrize("pattern", ["CamVid_L/{}_L.png", "CamVid-grey/{}-grey.png", "gtFine/{}.png"])
def test_folders_whose_names_differ_in_an_ending_are_refused_as_pairs(tmp_path, pattern):
    names = ("Seq05_0", "Seq16_1", "0001TP_2")
    tree = {each.format(name): photo(1) for each in ("CamVid/{}.jpg", pattern) for name in names}
    with pytest.raises(SourceError, match=r"pairs of images|parts of one dataset"):
        open_source(written(tmp_path / "data", tree))


CLASSES = {
    "faces": ("mask/{}.jpg", "no_mask/{}.jpg"),
    "other faces": ("with_mask/{}.jpg", "without_mask/{}.jpg"),
    "letters": ("w/{}.jpg", "x/{}.jpg", "y/{}.jpg"),
    "models": ("model_x/{}.jpg", "model_y/{}.jpg"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_whose_names_hold_such_words_stay_classes(tmp_path, name):
    tree = {pattern.format(at): photo(at) for pattern in CLASSES[name] for at in range(3)}
    [source] = open_source(written(tmp_path / "data", tree)).values()
    assert source.classes == tuple(sorted(pattern.split("/")[0] for pattern in CLASSES[name]))


def test_photos_in_folders_of_such_names_are_packed_as_classes_if_asked(tmp_path):
    root = written(tmp_path / "data", tree_of("images/{}.jpg", "masks/{}.png"))
    [source] = open_source(root, layout="classes").values()
    assert (source.classes, len(source)) == (("images", "masks"), 6)


@pytest.mark.parametrize(
    ("masked", "alone"),
    [
        (("train/{}.jpg", "train_masks/{}_mask.png"), "test/t{}.jpg"),
        (("train/{}.jpg", "trainannot/{}.png"), "test/{}.jpg"),
        (("train/images/{}.jpg", "train/masks/{}.png"), "test/images/{}.jpg"),
        (("images/train/{}.jpg", "masks/train/{}.png"), "images/test/{}.jpg"),
    ],
)
def test_a_split_without_masks_is_left_out_and_named(tmp_path, masked, alone):
    root = written(tmp_path / "data", tree_of(*masked, alone))
    assert main(["pack", str(root), str(tmp_path / "x.fl"), "--quiet"]) == 1
    sources = open_source(root)
    assert list(sources) == ["train"]
    assert {entry.key for entry in sources["train"].left_out} == {alone.format(at) for at in range(3)}
    assert "test' has no masks" in sources["train"].warnings[0]


def test_masks_beside_the_labels_of_yolo_are_its_own(tmp_path):
    root = written(tmp_path / "data", tree_of("images/{}.jpg", "masks/{}.png"))
    written(root, {f"labels/{at}.txt": "0 0.5 0.5 0.25 0.125\n" for at in range(3)})
    [source] = open_source(root).values()
    assert (source.kind, "mask" in source.read(0).values) == ("yolo", True)


@pytest.mark.parametrize(
    "pixels", [np.uint16(600) * np.eye(40, 50, dtype=np.uint16), np.eye(20, 25, dtype=np.uint8)]
)
def test_masks_of_16_bits_or_another_size_are_refused_and_no_class_of_images(tmp_path, pixels):
    masks = {f"masks/{at}.png": encoded(pixels, ".png") for at in range(4)}
    root = written(tmp_path / "data", masks | {f"images/{at}.jpg": photo(at) for at in range(4)})
    with pytest.raises(
        SourceError, match=r"masks/0.png: .*must have (the size|classes of 8 bits.*depth.*--layout classes)"
    ):
        pack(root, tmp_path / "x.fl", workers=1)


def test_an_image_without_its_mask_is_skipped(tmp_path):
    root = masks(tmp_path / "data")
    (root / "masks/2_mask.png").unlink()
    (root / "masks/9_mask.png").write_bytes(mask(9))
    result = pack(root, tmp_path / "x.fl", encode="keep", on_error="skip", workers=1)
    assert [(each.key, "mask" in each.reason) for each in result.splits[0].skipped] == [
        ("images/2.jpg", True)
    ]
    assert [entry.key for entry in result.splits[0].left_out] == ["masks/9_mask.png"]


def test_masks_are_classes_of_pixels(tmp_path):
    pack(masks(tmp_path / "data"), tmp_path / "x.fl", encode="keep", workers=1)
    _, target = PackedDataset(tmp_path / "x.fl")[3]
    assert (list(target), target["mask"].dtype, target["mask"].unique().tolist()) == (
        ["mask"],
        torch.uint8,
        [0, 1],
    )


def test_one_bit_masks_are_0_and_1(tmp_path):
    from PIL import Image

    from fastload.images.masks import decode_mask

    Image.fromarray(np.eye(16, dtype=bool)).save(tmp_path / "a.png")
    assert np.array_equal(decode_mask((tmp_path / "a.png").read_bytes()), np.eye(16))
    assert np.array_equal(decode_mask(encoded(np.full((4, 4, 3), 7, np.uint8), ".png")), np.full((4, 4), 7))


@pytest.mark.parametrize("pattern", ["{}/{}/{}{}", "{1}/{0}/{2}{3}"])
@pytest.mark.parametrize("names", [("train_val", "TEST"), ("trainval", "test")])
def test_a_split_under_another_name_is_not_left_behind(tmp_path, pattern, names):
    tree = {
        pattern.format(split, part, split, at) + suffix: data
        for split in names
        for at in range(2)
        for part, suffix, data in (("images", ".jpg", photo(at)), ("masks", ".png", mask(at)))
    }
    root = written(tmp_path / "data", tree)
    with pytest.raises(SourceError, match=rf"splits named train, val and test, got images in '{names[0]}'"):
        open_source(root)
    [source] = open_source(root, layout="masks").values()
    assert len(source) == 2
