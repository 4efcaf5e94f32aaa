"""Samples in every form in which torchvision v2 is called: its results, or an error that says why not."""

import collections
import contextlib
import itertools
import re

import numpy as np
import PIL.Image
import pytest
import torch

import fastload.transforms as T
from fastload.errors import FastloadError, OptionError
from fastload.transforms.draws import draws_for
from fastload.transforms.pipeline import Pipeline
from fastload.transforms.samples import Sample

tv = pytest.importorskip("torchvision.tv_tensors")
v2 = pytest.importorskip("torchvision.transforms.v2")

SIZE = HEIGHT, WIDTH = 20, 30
CORNERS = [[1, 2, 9, 9], [12, 4, 28, 18]]
CLASSES = np.random.default_rng(0).integers(-2, 3, SIZE)

Pair = collections.namedtuple("Pair", "image target")

MASK_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32)
BOXES = [
    *itertools.product(("XYXY", "XYWH", "CXCYWH"), (torch.float32, torch.int64)),
    ("XYWH", torch.float64),
    ("CXCYWH", torch.float16),
]


def boxes(box_format="XYXY", dtype=torch.float32, corners=CORNERS, clamping_mode="soft"):
    numbers = torch.tensor(corners, dtype=torch.float64)
    first, sides = numbers[:, :2], numbers[:, 2:] - numbers[:, :2]
    if box_format != "XYXY":
        numbers = torch.cat((first if box_format == "XYWH" else first + sides / 2, sides), dim=1)
    options = {"canvas_size": SIZE, "clamping_mode": clamping_mode}
    return tv.BoundingBoxes(numbers.to(dtype), format=box_format, **options)


def classes(dtype):
    numbers = torch.from_numpy(CLASSES)
    is_wide = dtype not in (torch.bool, torch.uint8, torch.int8)
    return tv.Mask((numbers * 150 if is_wide else numbers.abs()).to(dtype))


def points(values, dtype=torch.float32):
    return tv.KeyPoints(torch.tensor(values, dtype=dtype), canvas_size=SIZE)


def images():
    pixels = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (3, *SIZE), np.uint8))
    batch = torch.stack([pixels, pixels.flip(1)])
    return {
        "tensor": pixels,
        "Image": tv.Image(pixels),
        "PIL": PIL.Image.fromarray(pixels.permute(1, 2, 0).numpy()),
        "batch": batch[:1],
        "Image of a batch": tv.Image(batch),
    }


LABELS = torch.tensor([1, 2])
TARGETS = {
    **{f"boxes {name} {dtype}": {"boxes": boxes(name, dtype), "labels": LABELS} for name, dtype in BOXES},
    **{f"mask {dtype}": {"segmentation": classes(dtype)} for dtype in MASK_DTYPES},
    "boxes beyond the edges": {
        "b": boxes("XYWH", corners=[[-5, -3, 40, 15], [1, 2, 9, 9]]),
        "labels": LABELS,
    },
    "boxes never clipped": {"b": boxes(corners=[[-5, -3, 40, 15]] * 2, clamping_mode=None), "labels": LABELS},
    "no boxes": {"boxes": boxes(corners=np.zeros((0, 4))), "labels": LABELS[:0]},
    "an invalid box": {
        "boxes": boxes(corners=[[3, 3, 3, 9], [1, 2, 9, 9]]),
        "labels": torch.tensor([0.5, 2.5]),
        "image_id": torch.tensor([7, 8]),
        "orig_size": torch.tensor(SIZE),
        "masks": tv.Mask(torch.ones(2, *SIZE, dtype=torch.bool)),
        "names": ("cat", "dog"),
    },
    "masks with more axes": {"m": tv.Mask(torch.from_numpy(CLASSES).repeat(2, 3, 1, 1))},
    "two masks": {"m": classes(torch.int64), "n": tv.Mask(torch.ones(4, *SIZE))},
    "keypoints": {"k": points([[[3, 4], [5, 6]]]), "visibility": torch.ones(1, 2)},
    "keypoints in a row": {"k": points([[3, 4], [5, 6]]), "mask": classes(torch.uint8)},
    "whole keypoints": {"k": points([[3, 4]], torch.int64)},
    "boxes and keypoints": {"b": boxes(), "labels": LABELS, "k": points([[[3, 4], [5, 6]]] * 2)},
    "a class": 3,
    "a text": "cat",
    "a scalar": torch.tensor(3),
    "several classes": torch.tensor([0.0, 1.0, 1.0]),
    "none": None,
}

FORMS = {
    "T(image, target)": lambda image, target: (image, target),
    "T((image, target))": lambda image, target: ((image, target),),
    "T([image, target])": lambda image, target: ([image, target],),
    "T(named tuple)": lambda image, target: (Pair(image, target),),
    "T(dict)": lambda image, target: ({"image": image, "target": target},),
    "T(image, boxes, labels)": lambda image, target: (image, *_values(target)),
    "T(OrderedDict)": lambda image, target: (collections.OrderedDict(image=image, rest=[target]),),
}

TRANSFORMS = {
    "RandomHorizontalFlip": lambda m: m.RandomHorizontalFlip(1),
    "RandomVerticalFlip": lambda m: m.RandomVerticalFlip(1),
    "CenterCrop": lambda m: m.CenterCrop((26, 12)),
    "RandomCrop": lambda m: m.RandomCrop((24, 36), padding=(3, 2)),
    "RandomCrop of everything": lambda m: m.RandomCrop(SIZE),
    "Pad": lambda m: m.Pad((1, 2, 3, 4)),
    "Pad with a class": lambda m: m.Pad(2, fill={tv.Mask: 1, "others": 3}),
    "Pad of SSD": lambda m: m.Pad(
        2, fill=collections.defaultdict(lambda: (123.0, 117.0, 104.0), {tv.Mask: 0})
    ),
    "Resize": lambda m: m.Resize((10, 15)),
    "Resize by nearest": lambda m: m.Resize((40, 60), interpolation=v2.InterpolationMode.NEAREST),
    "RandomResizedCrop": lambda m: m.RandomResizedCrop((40, 60), scale=(1, 1), ratio=(1.5, 1.5)),
    "ScaleJitter": lambda m: m.ScaleJitter(SIZE, (1.0, 1.0)),
    "RandomShortestSize": lambda m: m.RandomShortestSize(10),
    "RandomRotation": lambda m: m.RandomRotation((180, 180)),
    "RandomAffine": lambda m: m.RandomAffine((0, 0)),
    "RandomPerspective": lambda m: m.RandomPerspective(p=0),
    "RandomZoomOut": lambda m: m.RandomZoomOut(p=0),
    "RandomIoUCrop": lambda m: m.RandomIoUCrop(sampler_options=[2.0]),
    "ClampBoundingBoxes": lambda m: m.ClampBoundingBoxes(),
    "ClampBoundingBoxes(None)": lambda m: m.ClampBoundingBoxes(clamping_mode=None),
    "ClampBoundingBoxes('hard')": lambda m: m.ClampBoundingBoxes(clamping_mode="hard"),
    "SanitizeBoundingBoxes": lambda m: m.SanitizeBoundingBoxes(),
    "SanitizeBoundingBoxes(None)": lambda m: m.SanitizeBoundingBoxes(labels_getter=None),
    "RandomInvert": lambda m: m.RandomInvert(1),
    "Grayscale": lambda m: m.Grayscale(3),
    "ColorJitter": lambda m: m.ColorJitter(),
    "RandomErasing": lambda m: m.RandomErasing(p=0),
    "RandAugment": lambda m: m.RandAugment(num_ops=0),
    "FiveCrop": lambda m: m.FiveCrop(5),
    "ToPureTensor": lambda m: m.ToPureTensor(),
    "Identity": lambda m: m.Identity(),
    "RandomApply": lambda m: m.RandomApply([m.RandomHorizontalFlip(1)], 1),
    "RandomChoice": lambda m: m.RandomChoice([m.RandomHorizontalFlip(1)]),
    "RandomOrder": lambda m: m.RandomOrder([m.RandomHorizontalFlip(1)]),
    "Compose": lambda m: m.Compose([m.RandomHorizontalFlip(1), m.Pad(1), m.RandomVerticalFlip(1)]),
}

# torchvision truncates whole numbers, and crops only the image of a sample with keypoints or text.
MAY_BE_REFUSED = re.compile("must be floating-point numbers|must be given images without")


def _values(target):
    return tuple(target.values()) if isinstance(target, dict) else (target,)


def assert_same(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert list(ours) == list(theirs)
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(ours, (list, tuple)):
        for pair in zip(ours, theirs, strict=True):
            assert_same(*pair)
    elif isinstance(ours, torch.Tensor):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        for name in ("format", "canvas_size", "clamping_mode"):
            assert getattr(ours, name, None) == getattr(theirs, name, None)
        is_image = type(ours) in (torch.Tensor, tv.Image) and ours.ndim > 2
        pair = [each.as_subclass(torch.Tensor).double() for each in (ours, theirs)]
        torch.testing.assert_close(*pair, rtol=0, atol=1.001 if is_image else 1e-3)
    elif isinstance(ours, PIL.Image.Image):
        assert np.abs(np.int32(ours) - np.int32(theirs)).max() <= 2
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", TRANSFORMS)
def test_samples_are_transformed_as_by_torchvision(name):
    ours, theirs = (TRANSFORMS[name](module) for module in (T, v2))
    calls = [((image, target), name) for name, target in TARGETS.items() for image in images().values()]
    some = ("boxes XYWH torch.float32", "an invalid box", "boxes and keypoints", "a class")
    for kind, form in itertools.product(some, FORMS.values()):
        calls.append((form(images()["Image"], TARGETS[kind]), kind))
    compared = 0
    for inputs, kind in calls:
        if name == "Pad with a class" and kind == "an invalid box":
            continue  # Here, pixels from outside of the image are never those of an object.
        try:
            expected = theirs(*inputs)
        except Exception:  # torchvision's errors have no type in common.
            continue
        try:
            found = ours(*inputs)
        except FastloadError as error:
            if not MAY_BE_REFUSED.search(str(error)):
                raise
            continue
        assert_same(found, expected)
        compared += 1
    assert compared >= 20


@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_other_errors_than_fastloads_are_raised(name):
    transform = TRANSFORMS[name](T)
    pictures = np.zeros((*SIZE, 3), np.uint8), np.zeros(SIZE, np.uint8), None
    for target, image in itertools.product(TARGETS.values(), pictures):
        with contextlib.suppress(FastloadError):
            transform(image, target)


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
        T.SanitizeBoundingBoxes(labels_getter=None).apply_to(Sample(target, SIZE).annotations, ())


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
    annotations = Sample({"mask": classes(torch.uint8)}, SIZE).annotations
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
