"""`fastload preview`: sheets of augmented samples, with their boxes, masks and keypoints."""

import cv2
import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from fastload.cli.main import main
from fastload.datasets.preview import _legend_of, _to_levels, colour_of, draw_objects, write_sheet
from tests.images.wide import scene

GREY = 90

MODULE = """
import numpy as np
import fastload.transforms as T


class Dots:
    classes = ["dot"]
    transform = None

    def __len__(self):
        return 3

    def __getitem__(self, index):
        image = np.full((40, 60, 3), 90, np.uint8)
        target = {"boxes": [[10, 10, 30, 30]], "labels": [0]}
        return (image, target) if self.transform is None else self.transform(image, target)


def flipped():
    return T.Compose([T.RandomHorizontalFlip(1), T.ToTensor()])


dark = T.Lambda(lambda image: image)
dots = Dots()
nothing = 3
"""


class Shapes(torch.utils.data.Dataset):
    """Samples with everything that can be drawn."""

    classes = ("left", "right")

    def __len__(self):
        return 2

    def __getitem__(self, index):
        mask = np.zeros((60, 80), np.uint8)
        mask[40:, :20] = 3
        target = {
            "boxes": torch.tensor([[10.0, 20.0, 40.0, 50.0], [50.0, 5.0, 70.0, 25.0]]),
            "labels": torch.tensor([0, 1]),
            "polygons": [[torch.tensor([[10.0, 20.0], [40.0, 20.0], [40.0, 50.0]])], []],
            "keypoints": torch.tensor([[[30.0, 30.0, 2.0]], [[60.0, 22.0, 0.0]]]),
            "mask": torch.from_numpy(mask),
        }
        return torch.full((3, 60, 80), GREY, dtype=torch.uint8), target


def drawn(target, names=("left", "right")):
    picture = np.full((60, 80, 3), GREY, np.uint8)
    draw_objects(picture, target, (60, 80), names)
    return picture


def test_every_kind_of_annotation_is_drawn_in_the_colour_of_its_class():
    _, target = Shapes()[0]
    picture = drawn(target)
    assert tuple(picture[49, 25]) == colour_of(0)  # a box
    assert (picture[25, 35] != GREY).any()  # a polygon's inside
    assert (picture[35, 14] == GREY).all()  # beside it
    assert (picture[55, 5] != GREY).any()  # a mask
    assert tuple(picture[30, 30]) == colour_of(0)  # a key point
    assert (picture[22, 60] == GREY).all()  # one that is not labelled
    oriented = {"boxes": target["boxes"], "labels": target["labels"]}
    oriented["corners"] = np.float32([[(20, 5), (60, 30), (50, 45), (9, 20)]] * 2)
    assert (drawn(oriented) != GREY).any()
    assert colour_of(0) != colour_of(1)


def test_a_sheet_shows_samples_of_any_dataset(tmp_path):
    assert write_sheet(Shapes(), tmp_path / "sheet.png") == 2
    sheet = cv2.imread(str(tmp_path / "sheet.png"))[..., ::-1].reshape(-1, 3)
    colours = {tuple(pixel) for pixel in sheet.tolist()}
    assert {colour_of(0), colour_of(1)} <= colours


@pytest.fixture
def here(tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"photos/class{number % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.full((30, 40, 3), 60 * number, np.uint8)
        assert cv2.imwrite(str(tmp_path / f"photos/class{number % 2}/{number}.png"), pixels)
    fastload.pack(tmp_path / "photos", tmp_path / "photos.fl", encode="keep", workers=1)
    (tmp_path / "preview_of_dots.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "dataset", ["photos", "photos.fl", "splits", "preview_of_dots:dots", "preview_of_dots:Dots"]
)
def test_the_command_draws_packed_folder_and_own_datasets(dataset, here, capsys):
    if dataset == "splits":
        (here / "splits").mkdir()
        (here / "photos.fl").rename(here / "splits/train.fl")
    assert main(["preview", dataset, "--transform", "preview_of_dots:flipped", "--images", "2"]) == 0
    assert "wrote 2 samples to preview.png" in capsys.readouterr().err
    sheet = cv2.imread("preview.png")
    if ":" in dataset:
        # Boxes from 10 to 30 of 60 columns, flipped: from 30 to 50, on a tile of 294 pixels.
        assert tuple(sheet[:, 6 + 147 + 2 : 6 + 245].reshape(-1, 3).max(axis=0)[::-1]) >= colour_of(0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.fl"], "does not exist: name a packed dataset, a folder, or MODULE:NAME"),
        (["no_such_module:x"], "must be MODULE:NAME of a dataset that can be imported"),
        (["photos", "--transform", "preview_of_dots:missing"], "must be MODULE:NAME of a transform"),
        (["photos", "--out", "x.jpg"], "a preview must be a .png file"),
    ],
)
def test_what_cannot_be_drawn_is_said(words, message, here, capsys):
    assert main(["preview", *words]) == 2
    assert message in capsys.readouterr().err


def test_transforms_of_torch_datasets_that_take_none_are_refused(here, capsys):
    (here / "preview_of_lists.py").write_text("import torch\npairs = [(torch.zeros(3, 4, 4), 0)]\n")
    assert main(["preview", "preview_of_lists:pairs"]) == 0
    words = ["preview", "preview_of_lists:pairs", "--transform", "preview_of_dots:flipped"]
    assert main(words) == 2
    assert "needs a dataset with an attribute `transform`" in capsys.readouterr().err


def test_normalised_images_are_shown(tmp_path):
    normalised = [(T.Normalize([0.5] * 3, [0.1] * 3)(torch.rand(3, 20, 20)), 0)]
    assert write_sheet(normalised, tmp_path / "sheet.png") == 1


def test_records_without_an_image_have_nothing_to_see(tmp_path, capsys):
    path = str(tmp_path / "x.fl")
    fastload.pack([{"id": index, "text": "a"} for index in range(3)], path, workers=1)
    assert main(["preview", path, "--out", str(tmp_path / "sheet.png")]) == 2
    assert "a preview shows images, and its records have none" in capsys.readouterr().err
    assert main(["info", path]) == 0
    assert "images     none" in capsys.readouterr().out
    assert not (tmp_path / "sheet.png").exists()


@pytest.mark.parametrize(
    ("dtype", "channels", "legend"),
    [
        ("uint16", 1, "uint16: each channel stretched from percentile 2 to 98 of each image"),
        ("float32", 3, ""),
        ("uint8", 5, "uint8: channels 1, 2 and 3 as red, green and blue of 5"),
        (
            "int16",
            7,
            "int16: channels 1, 2 and 3 as red, green and blue of 7; each channel stretched from "
            "percentile 2 to 98 of each image",
        ),
    ],
)
def test_other_types_are_stretched_and_a_legend_says_so(dtype, channels, legend, tmp_path):
    image = scene(40, 50, channels, dtype)
    image = image.clip(0, 1) if dtype == "float32" else image
    assert _legend_of(image) == legend
    levels = _to_levels(image)
    assert (levels.dtype, levels.shape) == (np.uint8, (40, 50, 3))
    if "stretched" in legend:
        low, high = np.percentile(image[:, :, 0], (2, 98))
        wanted = ((image[:, :, 0].astype(float) - low) * 255 / (high - low)).clip(0, 255)
        assert np.abs(levels[:, :, 0] - wanted).max() <= 1
    heights = []
    for samples in ([(image, 0)], [(image[:, :, :1].astype(np.uint8), 0)]):
        assert write_sheet(samples, tmp_path / "sheet.png") == 1
        heights.append(cv2.imread(str(tmp_path / "sheet.png")).shape[0])
    assert heights[0] - heights[1] == (18 if legend else 0)


def test_numbers_that_are_missing_are_black():
    image = scene(40, 50, 1, "float32") * 9
    image[:20] = np.nan
    assert not _to_levels(image)[:20].any()
    assert _to_levels(image)[20:].max() == 255
