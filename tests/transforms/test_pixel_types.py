"""Transforms of images of 16 bits, floats and many channels, against torchvision's for the same tensors."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as reference

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.images.pixel_types import most_of
from fastload.transforms.shapes import warping
from tests.images.wide import DTYPES, scene
from tests.transforms.tolerances import OF_WIDE_IMAGES

WIDE = [dtype for dtype in DTYPES if dtype != "uint8"]
CHANNELS = [1, 3, 4, 7]

pytestmark = pytest.mark.parametrize("channels", CHANNELS)


def tensor_of(dtype: str, channels: int, is_positive: bool = False) -> torch.Tensor:
    image = scene(45, 61, channels, dtype)
    if is_positive:
        image = np.clip(image, 0, most_of(image.dtype)).astype(dtype)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, 2, 0)))


def assert_near(result: torch.Tensor, wanted: torch.Tensor, kind: str) -> None:
    """Compare in levels of the dtype's white; the table gives the largest difference and its reason."""
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    difference = (result.double() - wanted.double()).abs().max().item()
    assert difference <= OF_WIDE_IMAGES[kind].levels, (difference, OF_WIDE_IMAGES[kind].reason)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest", "nearest-exact"])
@pytest.mark.parametrize("size", [(30, 40), (80, 50)])
def test_resize(dtype, channels, antialias, interpolation, size):
    image = tensor_of(dtype, channels)
    result = T.Resize(size, interpolation, antialias=antialias)(image)
    exact = image if interpolation.startswith("nearest") else image.float()
    wanted = reference.resize(exact, size, v2.InterpolationMode(interpolation), antialias=antialias)
    if not dtype.startswith("float") and not interpolation.startswith("nearest"):
        bounds = torch.iinfo(image.dtype)
        wanted = wanted.round().clamp(bounds.min, bounds.max)
    is_opencv = interpolation == "bilinear" and not antialias
    kind = "resize, not antialiased" if is_opencv else "resize"
    kind += ", floats" if dtype.startswith("float") else ", integers"
    assert_near(result, wanted.to(image.dtype), kind)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_warps(dtype, channels, interpolation):
    image = tensor_of(dtype, channels)
    fill = 0.5 if dtype.startswith("float") else 77
    mode = v2.InterpolationMode(interpolation)
    exact = image.float() if dtype == "float16" else image
    pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
    result = torch.from_numpy(warping.rotated(pixels, 33.0, interpolation, fill)).permute(2, 0, 1)
    wanted = reference.rotate(exact, 33.0, mode, fill=fill).to(image.dtype)
    assert_near(result, wanted, "warp")
    torch.manual_seed(0)
    for transform in (
        T.RandomPerspective(p=1.0, fill=fill),
        T.ElasticTransform(fill=fill),
        T.RandomAffine(20, fill=fill),
    ):
        moved = transform(image)
        assert (moved.dtype, moved.shape) == (image.dtype, image.shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wanted", [*DTYPES, "float64"])
@pytest.mark.parametrize("scale", [True, False])
def test_to_dtype(dtype, channels, wanted, scale):
    image = tensor_of(dtype, channels, is_positive=True)
    final = getattr(torch, wanted)
    result = T.ToDtype(final, scale=scale)(image)
    exact = image.float() if dtype == "float16" else image
    half = wanted == "float16" and scale
    reached = reference.to_dtype(exact, torch.float32 if half else final, scale).to(final)
    if not torch.equal(result, reached):  # they may be infinite
        assert_near(result, reached, "to half" if half else "to dtype")


def test_to_dtype_in_a_dataset_is_the_same(channels):
    image = tensor_of("uint16", channels)
    step = T.Compose([T.ToDtype(torch.float32, scale=True), T.Normalize([0.5] * channels, [0.25] * channels)])
    other = v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * channels, [0.25] * channels)]
    )
    torch.testing.assert_close(step(image), other(image), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", WIDE)
def test_brightness_and_contrast(dtype, channels):
    image = tensor_of(dtype, channels, is_positive=True)
    bright, flat = T.ColorJitter(brightness=(1.3, 1.3))(image), T.ColorJitter(contrast=(0.4, 0.4))(image)
    if channels in (1, 3):
        exact = image.float() if dtype == "float16" else image
        assert_near(bright, reference.adjust_brightness(exact, 1.3).to(image.dtype), "colour")
        assert_near(flat, reference.adjust_contrast(exact, 0.4).to(image.dtype), "colour")
    else:  # torchvision refuses them
        most = most_of(np.dtype(dtype))
        levels = image.double()
        step = 1 if most > 1 else 1e-3
        assert (bright.double() - (levels * 1.3).clamp(0, most)).abs().max() <= step
        assert (flat.double() - (levels * 0.4 + levels.mean() * 0.6).clamp(0, most)).abs().max() <= step


@pytest.mark.parametrize("dtype", WIDE)
def test_blur(dtype, channels):
    image = tensor_of(dtype, channels)
    exact = image.float() if dtype.startswith("float") else image.double()
    wanted = reference.gaussian_blur(exact, 5, [1.3, 1.3])
    wanted = wanted if dtype.startswith("float") else wanted.round()
    assert_near(T.GaussianBlur(5, (1.3, 1.3))(image), wanted.to(image.dtype), "blur")


@pytest.mark.parametrize("dtype", WIDE)
def test_inversion_padding_and_flips(dtype, channels):
    image = tensor_of(dtype, channels, is_positive=True)
    fill = 0.5 if dtype.startswith("float") else 77
    assert torch.equal(T.RandomInvert(1.0)(image), reference.invert(image))
    assert torch.equal(T.Pad((3, 4, 5, 6), fill=fill)(image), reference.pad(image, [3, 4, 5, 6], fill=fill))
    per_channel = [fill * (at + 1) / 8 if fill < 1 else fill + at for at in range(channels)]
    padded = T.Pad(2, fill=per_channel)(image)
    np.testing.assert_allclose(padded[:, 0, 0].double(), per_channel, atol=1e-3)
    assert torch.equal(T.RandomHorizontalFlip(1.0)(image), image[:, :, torch.arange(60, -1, -1)])


@pytest.mark.parametrize("dtype", WIDE)
def test_noise_and_erasing_stay_in_range(dtype, channels):
    image = tensor_of(dtype, channels, is_positive=True)
    noisy = T.GaussianNoise(sigma=0.2)(image)
    most = most_of(np.dtype(dtype))
    assert noisy.dtype == image.dtype
    assert (noisy.double() >= 0).all()
    assert (noisy.double() <= most).all()
    assert 0.05 < ((noisy.double() - image.double()) / most).std() < 0.25
    erased = T.RandomErasing(1.0, value=[0.25 if most == 1 else 7] * channels)(image)
    assert erased.dtype == image.dtype
    assert (erased != image).any()


@pytest.mark.parametrize("mix", [T.MixUp, T.CutMix])
@pytest.mark.parametrize("dtype", WIDE)
def test_mixtures(dtype, channels, mix):
    images = torch.stack(
        [tensor_of(dtype, channels), tensor_of(dtype, channels)[:, torch.arange(44, -1, -1)]]
    )
    mixed, _ = mix(num_classes=3)(images, torch.tensor([0, 2]))
    assert (mixed.dtype, mixed.shape) == (images.dtype, images.shape)


@pytest.mark.parametrize(
    "transform",
    [
        T.ColorJitter(hue=0.1), T.ColorJitter(saturation=0.1), T.RandomPosterize(4, 1.0), T.JPEG(50),
        T.RandomEqualize(1.0), T.RandAugment(), T.RandomGrayscale(1.0), T.RandomAutocontrast(1.0),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_meaning_is_one_sentence(transform, channels):
    with pytest.raises(OptionError, match="takes uint8 pixels, got uint16: put it before") as raised:
        transform(tensor_of("uint16", channels))
    assert str(raised.value).count("\n") == 0


def test_the_hue_of_seven_bands_is_refused(channels):
    if channels not in (1, 3):
        with pytest.raises(OptionError, match="must have 1 or 3 channels"):
            T.ColorJitter(hue=0.1)(tensor_of("uint8", channels))
