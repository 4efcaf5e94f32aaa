"""RandAugment and TrivialAugmentWide: operations, strengths and pixels, compared with torchvision's."""

import numpy as np
import pytest
import torch

import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import assert_same_distribution, drawn, picture, to_array, to_tensor
from tests.transforms.tolerances import assert_close

v2 = pytest.importorskip("torchvision.transforms.v2")

# torchvision's names, and the row of the table of tolerances for each.
CHANGES = {
    "Identity": "crop",
    "ShearX": "warp, nearest",
    "ShearY": "warp, nearest",
    "TranslateX": "warp, nearest",
    "TranslateY": "warp, nearest",
    "Rotate": "warp, nearest",
    "Brightness": "brightness",
    "Color": "saturation",
    "Contrast": "contrast",
    "Sharpness": "sharpness",
    "Posterize": "posterize",
    "Solarize": "solarize",
    "AutoContrast": "autocontrast",
    "Equalize": "equalize",
}
NUMBERS = dict(enumerate(CHANGES))
POLICIES = {
    "RandAugment": (T.RandAugment, {"num_ops": 1}),
    "strong RandAugment": (T.RandAugment, {"num_ops": 1, "magnitude": 8, "num_magnitude_bins": 10}),
    "TrivialAugmentWide": (T.TrivialAugmentWide, {}),
    "coarse TrivialAugmentWide": (T.TrivialAugmentWide, {"num_magnitude_bins": 7}),
}


def recorded(make, options, size, count):
    """Return the operations and strengths that torchvision's policy applies to `count` images."""
    name = make.__name__
    record = []

    class Recording(getattr(v2, name)):
        def _apply_image_or_video_transform(self, image, transform_id, magnitude, **_):
            record.append((transform_id, magnitude))
            return image

    policy, image = Recording(**options), torch.empty(3, *size)
    for _ in range(count):
        policy(image)
    return record


def test_the_operations_match_torchvision():
    for name in ("RandAugment", "TrivialAugmentWide"):
        assert list(getattr(v2, name)._AUGMENTATION_SPACE) == list(CHANGES)


@pytest.mark.parametrize(("make", "options"), POLICIES.values(), ids=POLICIES)
def test_operations_and_strengths_are_drawn_like_torchvision(make, options):
    torch.manual_seed(0)
    theirs = recorded(make, options, (60, 331), 6000)
    rows = drawn(make(**options), (60, 331), 40_000)
    for number, name in NUMBERS.items():
        ours = rows[rows[:, 0] == number, 1]
        wanted = [strength for change, strength in theirs if change == name]
        # 40,000 / 14 and 6,000 / 14, give or take five deviations.
        assert abs(len(ours) - 2857) < 260
        assert abs(len(wanted) - 429) < 100
        if name not in ("Identity", "AutoContrast", "Equalize"):
            # Bit-equal: the last bit decides whether an image is shifted by 31 pixels or by 32.
            assert set(wanted) <= set(ours)
            assert_same_distribution(ours, wanted)


@pytest.mark.parametrize(("make", "options"), POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(("interpolation", "fill"), [("nearest", None), ("bilinear", (9, 99, 200))])
def test_augmented_pixels_match_torchvision(make, options, interpolation, fill):
    ours = make(**options, interpolation=interpolation, fill=fill)
    theirs = getattr(v2, make.__name__)(**options)
    mode = v2.InterpolationMode(interpolation)
    fills = {"others": None if fill is None else [float(level) for level in fill]}
    size = (45, 61)
    pixels = picture(size, "photo")
    rows = drawn(ours, size, 500)
    for number, name in NUMBERS.items():
        for row in rows[rows[:, 0] == number][:6].tolist():
            expected = theirs._apply_image_or_video_transform(to_tensor(pixels), name, row[1], mode, fills)
            tolerance = CHANGES[name].replace("nearest", interpolation)
            assert_close(ours.apply(pixels, row), to_array(expected), tolerance, spare=3)


def test_operations_are_applied_in_order():
    transform = T.RandAugment(num_ops=3)
    pixels = picture((30, 40))
    for row in drawn(transform, (30, 40), 10).tolist():
        expected = pixels
        for first in (0, 2, 4):
            expected = T.RandAugment(num_ops=1).apply(expected, row[first : first + 2])
        np.testing.assert_array_equal(transform.apply(pixels, row), expected)


def test_zero_operations_return_the_image_itself():
    pixels = picture((30, 40))
    transform = T.RandAugment(num_ops=0)
    assert transform.apply(pixels, drawn(transform, (30, 40), 1)[0]) is pixels


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (T.RandAugment, {"num_ops": -1}, "num_ops must be .* got -1"),
        (T.RandAugment, {"num_ops": 1.5}, "num_ops must be .* got 1.5"),
        (T.RandAugment, {"magnitude": 31}, "magnitude must be a whole number from 0 to 30, got 31"),
        (T.RandAugment, {"magnitude": -1}, "magnitude must be .* got -1"),
        (T.TrivialAugmentWide, {"num_magnitude_bins": 1}, "num_magnitude_bins must be .* got 1"),
        (T.TrivialAugmentWide, {"interpolation": "area"}, "must be nearest or bilinear here, got 'area'"),
        (T.TrivialAugmentWide, {"fill": "red"}, "fill must be .* got 'red'"),
    ],
)
def test_parameters_are_checked(make, options, message):
    with pytest.raises(OptionError, match=message):
        make(**options)
