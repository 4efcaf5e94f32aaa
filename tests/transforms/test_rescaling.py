"""ToDtype and Normalize, compared with torchvision's."""

import numpy as np
import pytest
import torch
from PIL import Image

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.pipeline import Pipeline
from tests.transforms.samples import KINDS, keys, picture, to_array, to_tensor
from tests.transforms.tolerances import TOLERANCES

v2 = pytest.importorskip("torchvision.transforms.v2")

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def assert_near(ours, theirs, step):
    """Assert equality within the table's tolerance, times `step`, or within the resolution of the dtype."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    precision = torch.finfo(theirs.dtype).eps * 3 if theirs.dtype.is_floating_point else 0
    limit = TOLERANCES["rescale"].levels * step + precision * theirs.abs().max()
    assert (ours.double() - theirs.double()).abs().max() <= limit


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8])
def test_dtypes_are_converted_like_torchvision(dtype, scale, kind):
    image = to_tensor(picture((13, 20), kind))
    ours, theirs = T.ToDtype(dtype, scale=scale)(image), v2.ToDtype(dtype, scale=scale)(image)
    assert_near(ours, theirs, 1 / 255 if scale else 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("std", [STD, [3.0, 0.01, 1.0]])
def test_normalised_pixels_match_torchvision(dtype, std):
    image = v2.ToDtype(dtype, scale=True)(to_tensor(picture((13, 20))))
    ours, theirs = T.Normalize(MEAN, std)(image), v2.Normalize(MEAN, std)(image)
    assert_near(ours, theirs, 1 / 255 / min(std))


def test_one_channel_is_normalised_by_one_mean():
    image = v2.ToDtype(torch.float32, scale=True)(to_tensor(picture((13, 20), "one")))
    assert_near(T.Normalize([0.5], [0.25])(image), v2.Normalize([0.5], [0.25])(image), 1 / 64)


@pytest.mark.parametrize("reverse", [False, True])
def test_read_only_and_mirrored_images_are_normalised(reverse):
    pixels = picture((13, 20)).astype(np.float32)
    view = pixels[:, ::-1] if reverse else pixels
    expected = to_array(v2.Normalize(MEAN, STD)(to_tensor(view)))
    view.flags.writeable = False
    np.testing.assert_allclose(T.Normalize(MEAN, STD).apply(view, ()), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (T.ToDtype, {"dtype": torch.int64}, "dtype must be one of torch's .* got torch.int64"),
        (T.ToDtype, {"dtype": "float32"}, "dtype must be .* got 'float32'"),
        (
            T.Normalize,
            {"mean": [0.5], "std": [0.5, 0.5]},
            "mean and std must be lists with a number for each channel",
        ),
        (
            T.Normalize,
            {"mean": 0.5, "std": 0.5},
            "must be lists with a number for each channel.* got 0.5 and 0.5",
        ),
        (T.Normalize, {"mean": ["grey"], "std": [0.5]}, "must be lists with a number"),
        (T.Normalize, {"mean": [0.5], "std": [0.0]}, "std none of 0"),
        (T.Normalize, {"mean": [], "std": []}, "mean and std must be lists"),
    ],
)
def test_parameters_are_checked(make, options, message):
    with pytest.raises(OptionError, match=message):
        make(**options)


def test_normalising_bytes_is_refused():
    with pytest.raises(OptionError, match=r"Normalize must be given floating-point pixels, got torch\.uint8"):
        T.Normalize(MEAN, STD)(picture((4, 4)))


def test_the_number_of_means_is_checked():
    with pytest.raises(OptionError, match="a mean and std for each of 3 channels, got 2"):
        T.Normalize([0.1, 0.2], [1.0, 1.0])(picture((4, 4)).astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_all_floating_dtypes_are_supported(dtype):
    image = torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8)
    made = T.ToDtype(dtype, scale=True)(image)
    assert made.dtype == dtype
    assert torch.allclose(made.float(), image / 255, atol=0.01)
    assert T.Normalize((0.5,) * 3, (0.5,) * 3)(made).dtype == dtype


def test_a_pil_image_becomes_a_tensor_of_numbers():
    image = Image.new("RGB", (7, 5), (255, 0, 0))
    made = T.ToDtype(torch.float32, scale=True)(image)
    assert made.shape == (3, 5, 7)
    assert made[0].eq(1).all()


def test_nothing_may_follow_bytes_that_are_rounded():
    steps = [T.ToDtype(torch.float32), T.Normalize([0.5], [0.7]), T.ToDtype(torch.uint8)]
    image = torch.full((3, 2, 2), 9, dtype=torch.uint8)
    assert Pipeline(T.Compose(steps)).run(to_array(image), keys(1)).dtype == torch.uint8
    with pytest.raises(OptionError, match="after Normalize must be the last transform"):
        Pipeline(T.Compose([*steps, T.ToTensor()])).run(to_array(image), keys(1))
