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
        "floats": torch.rand(3, *SIZE, requires_grad=True),
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
    "lists": {"boxes": boxes(), "labels": [1, 2], "iscrowd": [False, True], "area": [np.ones(2), None]},
    "arrays": {"boxes": boxes(), "labels": np.array([1, 2], np.int16), "scores": np.array([0.5, 1])},
    "labels in a tuple": {"boxes": boxes(), "labels": (1.5, 2)},
    "one label": {"boxes": boxes(), "labels": "cat"},
    "gradients": {
        "boxes": boxes().requires_grad_(),
        "labels": torch.tensor([0.5, 1], requires_grad=True),
        "m": tv.Mask(torch.ones(SIZE), requires_grad=True),
        "k": tv.KeyPoints(torch.ones(3, 2), canvas_size=SIZE, requires_grad=True),
    },
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

# torchvision truncates whole numbers, crops only the image of a sample with keypoints or text, and changes
# the colours of floating-point numbers.
MAY_BE_REFUSED = re.compile(
    "must be floating-point numbers|must be given images without|takes uint8 pixels, got float32"
)


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
        for name in ("requires_grad", "format", "canvas_size", "clamping_mode"):
            assert getattr(ours, name, None) == getattr(theirs, name, None)
        is_image = type(ours) in (torch.Tensor, tv.Image) and ours.ndim > 2
        pair = [each.as_subclass(torch.Tensor).double() for each in (ours, theirs)]
        torch.testing.assert_close(*pair, rtol=0, atol=1.001 if is_image else 1e-3)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
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


def test_gradients_flow_through_the_arithmetic_on_levels():
    for image in (torch.rand(3, *SIZE, requires_grad=True), tv.Image(torch.rand(3, *SIZE))):
        image.requires_grad_()
        steps = T.Compose([T.ToDtype(torch.float64), T.Normalize([0.5] * 3, [0.25] * 3)])
        steps(image).sum().backward()
        assert torch.equal(image.grad, torch.full((3, *SIZE), 4.0))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_other_errors_than_fastloads_are_raised(name):
    transform = TRANSFORMS[name](T)
    pictures = np.zeros((*SIZE, 3), np.uint8), np.zeros(SIZE, np.uint8), None
    for target, image in itertools.product(TARGETS.values(), pictures):
        with contextlib.suppress(FastloadError):
            transform(image, target)


@pytest.mark.parametrize("count", range(3))
@pytest.mark.parametrize("key", ["mask", "segmentation"])
def test_padding_of_a_mask_of_classes_does_not_depend_on_the_number_of_boxes(key, count):
    target = {
        "boxes": boxes(corners=[[1, 2, 9, 9]] * count or np.zeros((0, 4))),
        "labels": torch.zeros(count, dtype=torch.int64),
        key: tv.Mask(torch.ones(2, *SIZE, dtype=torch.uint8)),
    }
    image = tv.Image(torch.zeros(3, *SIZE, dtype=torch.uint8))
    for fill in (255, {tv.Mask: 255, tv.Image: 0}):
        ours, theirs = (each.Pad(2, fill=fill)(image, target)[1][key] for each in (T, v2))
        assert torch.equal(ours, theirs)


def test_padding_of_masks_of_objects_is_that_given_for_masks():
    target = {"boxes": boxes(), "labels": LABELS, "masks": tv.Mask(torch.ones(2, *SIZE, dtype=torch.uint8))}
    image = tv.Image(torch.zeros(3, *SIZE, dtype=torch.uint8))
    padded = [T.Pad(2, fill=fill)(image, target)[1]["masks"] for fill in (255, {tv.Mask: 7, "others": 0})]
    assert [masks[:, 0, 0].tolist() for masks in padded] == [[0, 0], [7, 7]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool])
def test_whole_boxes_that_outgrow_their_dtype_are_refused_for_that_reason(dtype):
    target = {"boxes": boxes(dtype=dtype), "labels": LABELS}
    with pytest.raises(OptionError, match=rf"larger than {dtype} can hold"):
        T.Pad(300)(tv.Image(torch.zeros(3, *SIZE, dtype=torch.uint8)), target)
