"""Names: all of torchvision's image transforms exist, or the error names an alternative."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from fastload.errors import OptionError
from tests.transforms.samples import picture, to_tensor

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

SIZE = (37, 53)


THEIRS = sorted(
    {
        name
        for module in (v1, v2)
        for name, value in vars(module).items()
        if isinstance(value, type) and not name.startswith("_")
    }
)


# They need formats of boxes, keypoints of their own, or videos.
MISSING = [
    "ClampKeyPoints",
    "ConvertBoundingBoxFormat",
    "SanitizeKeyPoints",
    "SetClampingMode",
    "UniformTemporalSubsample",
]


@pytest.mark.parametrize("name", sorted(set(THEIRS) - set(MISSING)))
def test_no_name_of_torchvisions_is_missing(name):
    assert name in T.__all__
    assert name in dir(T)


def test_the_page_of_transforms_lists_every_name():
    page = (Path(fastload.__file__).parent.parent / "docs" / "transforms.md").read_text()
    table = page.split("| sequence and choice |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", "| sequence and choice |" + table)) == sorted(T.__all__)


@pytest.mark.parametrize("name", ["functional", "query_size", "Resized", *MISSING])
def test_other_names_are_refused_with_the_place_of_torchvisions(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .* are in torchvision.transforms.v2"):
        getattr(T, name)


def test_a_subclass_without_apply_raises():
    class Own(T.Transform):
        def transform(self, image, parameters):
            return image

    with pytest.raises(NotImplementedError, match="Own must define apply"):
        Own()(picture(SIZE))


def test_enums_match_torchvision():
    for name in ("InterpolationMode", "AutoAugmentPolicy"):
        ours, theirs = getattr(T, name), getattr(v2, name)
        assert {each.name: each.value for each in ours} == {each.name: each.value for each in theirs}
    pixels = picture(SIZE)
    ours, theirs = (T.Resize(20, mode.BICUBIC) for mode in (T.InterpolationMode, v2.InterpolationMode))
    np.testing.assert_array_equal(ours(pixels), theirs(pixels))
    expected = v2.Resize(20, v2.InterpolationMode.BICUBIC)(to_tensor(pixels))
    assert torch.equal(v2.Resize(20, T.InterpolationMode.BICUBIC)(to_tensor(pixels)), expected)
    assert repr(T.AutoAugment(v2.AutoAugmentPolicy.SVHN)) == repr(T.AutoAugment(T.AutoAugmentPolicy.SVHN))
    with pytest.raises(OptionError, match="interpolation must be one of"):
        T.Resize(20, T.InterpolationMode.LANCZOS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandomChoice([]), "RandomChoice must be given a list of transforms"),
        (lambda: T.RandomChoice([T.Pad(1)], p=[1, 2]), "p must be a weight for each of 1 transforms"),
        (lambda: T.RandomOrder([abs]), "RandomOrder takes fastload's image transforms"),
        (lambda: T.RandomOrder([T.Grayscale()]).channels_after(3), "RandomOrder must keep the 3 channels"),
        (lambda: T.RandomPosterize(9), "bits must be .* got 9"),
        (lambda: T.RandomSolarize(256), "threshold must be .* got 256"),
        (lambda: T.RandomAdjustSharpness(-1), "sharpness_factor must be .* got -1"),
        (lambda: T.RandomPhotometricDistort(hue=(-1, 1)), "hue must be"),
        (lambda: T.RandomPhotometricDistort(contrast=(2, 1)), "contrast must be .* the smaller first"),
        (lambda: T.RandomResize(5, 5), "max_size must be a whole number of at least 6, got 5"),
        (lambda: T.RandomShortestSize([0]), "min_size must be"),
        (lambda: T.ScaleJitter((4, 4), (0, 1)), "scale_range must be"),
        (lambda: T.RandomZoomOut(side_range=(0.5, 1)), "side_range must be"),
        (lambda: T.RandomPerspective(2), "distortion_scale must be"),
        (lambda: T.ElasticTransform(sigma=(0, 1)), "sigma must be"),
        (lambda: T.ElasticTransform("a"), "alpha must be"),
        (lambda: T.GaussianNoise(sigma=-1), "sigma must be"),
        (lambda: T.GaussianNoise(mean="dark"), "mean must be a number"),
        (lambda: T.JPEG(101), "quality must be"),
        (lambda: T.JPEG((50, 20)), "quality must be"),
        (lambda: T.AutoAugment("imagenet2"), "policy must be one of"),
        (lambda: T.AugMix(severity=11), "severity must be"),
        (lambda: T.AugMix(mixture_width=0), "mixture_width must be"),
        (lambda: T.AugMix(alpha=0), "alpha must be"),
    ],
)
def test_parameters_are_checked(make, message):
    with pytest.raises(OptionError, match=message):
        make()


def test_parameters_may_be_numpys_numbers():
    crop = T.RandomResizedCrop(np.int64(8), scale=(np.float32(0.5), np.float64(1)))
    assert crop.size == (8, 8)
    assert crop.scale == (0.5, 1)
    assert T.RandomRotation(np.float32(3)).degrees == (-3, 3)
