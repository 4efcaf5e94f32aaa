"""Parameters and targets that torchvision v2 knows: its results, or an error where numbers would change."""

import itertools

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import draws_for
from fastload.transforms.pipeline import Pipeline
from fastload.transforms.samples import SampleParts
from tests.transforms.test_samples import (
    CLASSES,
    CORNERS,
    LABELS,
    SIZE,
    assert_same,
    boxes,
    classes,
    images,
    points,
)

tv = pytest.importorskip("torchvision.tv_tensors")
v2 = pytest.importorskip("torchvision.transforms.v2")


def sample(**target):
    return torch.zeros(3, *SIZE, dtype=torch.uint8), target


def test_entries_named_as_in_packed_datasets_keep_their_values_and_dtypes():
    target = {
        "boxes": CORNERS,
        "labels": torch.tensor([0.7, 1.5]),
        "mask": torch.from_numpy(CLASSES * 300),
        "masks": torch.ones(2, *SIZE, dtype=torch.bool),
    }
    _, moved = T.RandomHorizontalFlip(1)(*sample(**target))
    assert moved["boxes"].tolist() == [[21, 2, 29, 9], [2, 4, 18, 18]]
    assert torch.equal(moved["labels"], target["labels"])
    assert torch.equal(moved["mask"], target["mask"].flip(1))
    assert moved["masks"].dtype == torch.bool
    _, padded = T.Pad(1, fill={tv.Mask: -100, "others": 0})(*sample(mask=torch.full(SIZE, 1 << 40)))
    assert padded["mask"][0, 0] == -100
    assert padded["mask"].max() == 1 << 40
    names = T.SanitizeBoundingBoxes(5, 100)(*sample(boxes=CORNERS, labels=["cat", "dog"], sides=[7, 14]))[1]
    assert (names["labels"], names["sides"]) == (["dog"], [14])


def test_a_labels_getter_says_what_goes_with_boxes():
    target = {
        "boxes": boxes(),
        "labels": LABELS,
        "area": torch.tensor([56, 224]),
        "ages": torch.tensor([3, 4]),
    }

    def getter(inputs):
        return inputs[1]["labels"], inputs[1]["area"]

    ours, theirs = (module.SanitizeBoundingBoxes(8, 100, getter)(*sample(**target)) for module in (T, v2))
    assert_same(ours, theirs)
    assert ours[1]["ages"].tolist() == [3, 4]
    for labels_getter, message in (
        (lambda _: LABELS[:1], "a row for each of 2 boxes"),
        ("labels", "'default'"),
    ):
        with pytest.raises(OptionError, match=message):
            T.SanitizeBoundingBoxes(labels_getter=labels_getter)(*sample(**target))
    with pytest.raises(OptionError, match="labels_getter='default' in a dataset's transform"):
        T.SanitizeBoundingBoxes(labels_getter=None).apply_to(SampleParts(target, SIZE).annotations, ())


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_batches_in_dicts_are_mixed_as_by_torchvision(name):
    batch = {
        "label_ids": torch.tensor([0, 2, 1]),
        "x": tv.Image(torch.rand(3, 3, *SIZE)),
        "ids": ["a", "b", "c"],
    }
    results = []
    for module, getter in itertools.product((T, v2), ("default", lambda inputs: inputs["label_ids"])):
        torch.manual_seed(1)
        results.append(getattr(module, name)(num_classes=3, labels_getter=getter)(batch))
    for each in results[1:]:
        assert_same(each, results[0])
    with pytest.raises(OptionError, match="without boxes, masks or keypoints"):
        getattr(T, name)(num_classes=3)({**batch, "boxes": boxes()})


def test_dtypes_by_type_are_torchvisions():
    dtypes = {tv.Image: torch.float32, tv.Mask: torch.int64, tv.BoundingBoxes: torch.float64, "others": None}
    target = {"boxes": boxes(), "m": classes(torch.uint8), "k": points([[1, 2]]), "labels": LABELS}
    image = images()["Image"]
    assert_same(*(module.ToDtype(dtypes, scale=True)((image, target)) for module in (T, v2)))
    assert torch.equal(T.ToDtype({tv.Mask: torch.int64, "others": None})(image), image)
    with pytest.raises(OptionError, match=r"an entry for BoundingBoxes, or \"others\""):
        T.ToDtype({tv.Image: torch.float32})(image, target)
    with pytest.raises(
        OptionError, match=r"numbers that torch.uint8 can hold, got torch.int64 from -300 to 300"
    ):
        T.ToDtype({tv.Mask: torch.uint8, "others": None})(image, {"mask": classes(torch.int64)})


def test_dtypes_by_type_reach_the_annotations_of_a_dataset():
    dtypes = {tv.Image: torch.float32, tv.Mask: torch.int64, "others": None}
    pipeline = Pipeline(T.Compose([T.RandomHorizontalFlip(1), T.ToDtype(dtypes, scale=True)]))
    annotations = SampleParts({"mask": classes(torch.uint8)}, SIZE).annotations
    drawn = pipeline.draw(draws_for([0]), np.array([SIZE]), annotations=[annotations])
    assert drawn.annotations[0].mask.dtype == np.int64
    assert pipeline.tail.dtype == torch.float32


@pytest.mark.parametrize(
    ("transform", "target", "message"),
    [
        (
            T.Resize(7),
            {"boxes": boxes(dtype=torch.int64)},
            "BoundingBoxes must be floating-point .*torch.int64",
        ),
        (
            T.Pad(1, fill=300),
            {"mask": classes(torch.uint8)},
            "fill must be from 0 to 255|that a mask of uint8",
        ),
        (T.Pad(1, fill=-100), {"m": classes(torch.uint8)}, "fill must be"),
        (
            T.Pad(1, {tv.Mask: 0.5, "others": 0}),
            {"m": classes(torch.int64)},
            "a mask of int64 can hold, got 0.5",
        ),
        (T.RandomRotation(9, fill=300), None, "fill must be from 0 to 255 for pixels of uint8"),
        (T.Identity(), {"b": tv.BoundingBoxes(CORNERS, format="XYXY", canvas_size=(9, 9))}, "canvas_size"),
        (T.RandomHorizontalFlip(1), {"m": tv.Mask(torch.ones(4, 5))}, r"a mask must have its image's size"),
        (T.RandomHorizontalFlip(1), {"a": boxes(), "b": boxes()}, "the boxes of one image, got 2"),
        (T.RandomHorizontalFlip(1), {"v": tv.Video(torch.ones(4, 3, *SIZE))}, "got a Video"),
        (T.RandomHorizontalFlip(1), {"boxes": CORNERS, "labels": [1]}, "labels with a row for each"),
        (T.RandomHorizontalFlip(1, [1, 0]), {"boxes": CORNERS, "keypoints": np.ones((2, 3, 3))}, "flip_idx"),
        (T.SanitizeBoundingBoxes(), {"labels": LABELS}, "must be given boxes"),
        (T.Lambda(abs), {"boxes": CORNERS}, "called with an image alone"),
    ],
)
def test_what_cannot_be_represented_is_refused(transform, target, message):
    with pytest.raises(OptionError, match=message):
        transform(*sample(**target)) if target else transform(sample()[0])


def test_rotated_boxes_are_refused():
    rotated = tv.BoundingBoxes([[1.0, 2, 3, 4, 30]], format="XYWHR", canvas_size=SIZE)
    with pytest.raises(OptionError, match="XYXY, XYWH or CXCYWH, got XYWHR"):
        T.RandomHorizontalFlip(1)(*sample(boxes=rotated))


def test_annotations_alone_are_transformed():
    assert_same(*(module.RandomHorizontalFlip(1)(boxes("XYWH")) for module in (T, v2)))
    assert_same(*(module.Resize((7, 9))(classes(torch.int64)) for module in (T, v2)))
    with pytest.raises(OptionError, match=r"must hold an image .* got a dict of labels"):
        T.RandomHorizontalFlip(1)({"labels": LABELS})


def test_all_images_of_a_sample_are_transformed_alike():
    left, right = (images()["Image"] for _ in range(2))
    assert_same(*(module.RandomVerticalFlip(1)({"left": left, "right": right}) for module in (T, v2)))
    moved = T.RandomCrop(8)({"left": left, "right": right})
    assert torch.equal(moved["left"], moved["right"])


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint16, torch.float16])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_padding_keeps_numbers_of_any_dtype(dtype, mode):
    image = (torch.arange(3 * 20).reshape(3, 4, 5) * (1 << 33 if dtype == torch.int64 else 1)).to(dtype)
    assert_same(*(module.Pad((1, 2, 3, 1), 1, mode)(image.clone()) for module in (T, v2)))


def test_half_precision_is_resized_as_by_torchvision():
    image = torch.rand(3, *SIZE).half()
    assert_same(*(module.Resize((7, 9))(image) for module in (T, v2)))


@pytest.mark.parametrize("image", [torch.zeros(4, 5, dtype=torch.uint8), np.zeros((4, 5), np.uint8)])
def test_grey_images_of_two_axes_become_pil_images(image):
    assert T.ToPILImage()(image).mode == v2.ToPILImage()(image).mode == "L"


def test_to_tensor_follows_torchs_default_dtype():
    transform = T.ToTensor()
    torch.set_default_dtype(torch.float64)
    try:
        assert transform(images()["PIL"]).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert transform(images()["PIL"]).dtype == torch.float32


def test_unknown_clamping_modes_are_refused():
    with pytest.raises(OptionError, match="clamping_mode must be 'auto', 'soft', 'hard' or None, got 'bad'"):
        T.ClampBoundingBoxes("bad")
