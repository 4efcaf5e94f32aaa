"""Lazy images are PIL images: whatever is done to them, the pixels are PIL's."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torchvision import transforms

from fastload.datasets.compiled.lazy import LazyImage, plain_afterwards
from fastload.datasets.compiled.pipeline import CompiledTransform
from fastload.images.deferred import DeferredImage
from tests.images.samples import photo

PIXELS = photo(37, 53, seed=1)


def lazy_of(pixels):
    return LazyImage(DeferredImage.of_pixels(pixels))


def _both(pixels=PIXELS):
    return Image.fromarray(pixels), lazy_of(pixels)


@st.composite
def _operations(draw):
    """Crops within the image, flips and convert, as functions of an image."""
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["crop", "rows", "columns", "convert", "copy"]))
        share = draw(st.tuples(*[st.floats(0, 0.4)] * 4))
        steps.append((kind, share))
    return steps


def _apply(image, steps):
    for kind, (left, top, right, bottom) in steps:
        width, height = image.size
        if kind == "crop":
            box = (
                int(left * width),
                int(top * height),
                width - int(right * width),
                height - int(bottom * height),
            )
            image = image.crop(box)
        elif kind in ("rows", "columns"):
            flips = {"rows": Image.Transpose.FLIP_TOP_BOTTOM, "columns": Image.Transpose.FLIP_LEFT_RIGHT}
            image = image.transpose(flips[kind])
        else:
            image = image.convert("RGB") if kind == "convert" else image.copy()
    return image


@given(_operations())
def test_crops_and_flips_are_pils(steps):
    expected, lazy = (_apply(image, steps) for image in _both())
    assert isinstance(lazy, LazyImage)
    assert lazy.size == expected.size
    assert np.array_equal(np.asarray(lazy), np.asarray(expected))


@given(_operations(), st.tuples(st.integers(1, 60), st.integers(1, 60)), _operations())
def test_crops_and_flips_of_resized_images_are_pils_within_two_levels(before, size, after):
    expected, lazy = (
        _apply(_apply(image, before).resize(size, Image.Resampling.BILINEAR), after) for image in _both()
    )
    assert np.abs(np.asarray(lazy).astype(int) - np.asarray(expected)).max() <= 2


@pytest.mark.parametrize(
    "operation",
    [
        lambda image: image.rotate(30),
        lambda image: image.convert("L"),
        lambda image: image.resize((20, 20), Image.Resampling.NEAREST),
        lambda image: image.resize((20, 20), Image.Resampling.LANCZOS, box=(1.5, 2, 20, 30)),
        lambda image: image.crop((-5, -5, 20, 60)),
        lambda image: image.transpose(Image.Transpose.ROTATE_90),
        lambda image: ImageOps.expand(image, 3),
        lambda image: image.getpixel((3, 4)),
        lambda image: image.histogram(),
        lambda image: image.tobytes(),
        lambda image: image.info,
        lambda image: image.getexif(),
        lambda image: image.point(lambda level: 255 - level),
    ],
)
def test_any_other_operation_is_pils(operation):
    expected, result = map(operation, _both())
    assert result == expected
    assert type(result) is type(expected)


def test_metadata_stay_with_crops_resizes_and_flips():
    image, _ = _both()
    image.info["dpi"] = (300, 300)
    changed = LazyImage.of(image).crop((1, 1, 30, 30)).resize((20, 20), Image.Resampling.BILINEAR)
    changed = changed.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((9, 9), Image.Resampling.BILINEAR)
    assert isinstance(changed, LazyImage)
    assert changed.info == image.info


@pytest.mark.parametrize(
    "step",
    [
        transforms.ColorJitter(0.4),
        transforms.ColorJitter(contrast=0.4),
        transforms.ColorJitter(saturation=0.4),
        transforms.ColorJitter(hue=0.4),
        transforms.GaussianBlur(3),
        transforms.Grayscale(),
        transforms.Grayscale(3),
        transforms.RandomGrayscale(1.0),
        transforms.RandomAdjustSharpness(2, p=1.0),
        transforms.RandomAutocontrast(p=1.0),
        transforms.RandomEqualize(p=1.0),
        transforms.RandomInvert(p=1.0),
        transforms.RandomPosterize(3, p=1.0),
        transforms.RandomSolarize(128, p=1.0),
        transforms.Pad(3),
        transforms.RandomCrop(60, padding=8, pad_if_needed=True),
        transforms.Resize(20, transforms.InterpolationMode.NEAREST),
    ],
    ids=repr,
)
def test_metadata_stay_where_torchvision_leaves_them(step):
    image, _ = _both()
    image.info["dpi"] = (300, 300)
    found = []
    steps = transforms.Compose([step, lambda image: found.append(image.info) or image, transforms.ToTensor()])
    steps(image)
    CompiledTransform(steps)(image)
    assert found[0] == found[1]


@pytest.mark.parametrize("blur", [transforms.GaussianBlur(23), transforms.GaussianBlur((3, 23))], ids=repr)
def test_blurs_that_do_not_fit_raise_torchvisions_error(blur):
    steps = transforms.Compose([blur, transforms.ToTensor()])
    image = Image.fromarray(PIXELS[:8, :12].copy())
    for transform in (steps, CompiledTransform(steps)):
        with pytest.raises(RuntimeError, match="Padding size should be less"):
            transform(image)
    fitting = Image.fromarray(PIXELS[:12, :12].copy())
    assert CompiledTransform(steps)(fitting).shape == steps(fitting).shape


def test_grey_images_have_one_channel():
    expected, lazy = Image.fromarray(PIXELS[:, :, 0].copy()), lazy_of(PIXELS[:, :, :1])
    assert (lazy.mode, lazy.getbands(), lazy.shape) == ("L", ("L",), (37, 53, 1))
    assert np.array_equal(np.asarray(lazy), np.asarray(expected))
    assert lazy.convert("RGB") == expected.convert("RGB")


def test_a_decoded_image_is_a_plain_one():
    _, lazy = _both()
    lazy.load()
    assert type(lazy) is Image.Image
    lazy.paste((0, 0, 0), (0, 0, 5, 5))
    assert lazy.getpixel((2, 2)) == (0, 0, 0)


def test_attributes_of_the_users_survive_decoding():
    _, lazy = _both()
    lazy.path = "a.jpg"
    lazy.load()
    assert lazy.path == "a.jpg"


@pytest.mark.parametrize("gap", [None, 2.0])
def test_thumbnails_are_pils(gap):
    expected, lazy = _both()
    for image in (expected, lazy):
        image.thumbnail((16, 16), Image.Resampling.BILINEAR, reducing_gap=gap)
    assert type(lazy) is Image.Image
    assert np.abs(np.asarray(lazy, np.int16) - np.asarray(expected)).max() <= 2


def test_images_that_outlive_a_block_become_plain():
    with plain_afterwards():
        kept, dropped = lazy_of(PIXELS).crop((3, 4, 20, 30)), lazy_of(PIXELS)
        assert type(kept) is LazyImage
        del dropped
    assert type(kept) is Image.Image
    assert kept == Image.fromarray(PIXELS).crop((3, 4, 20, 30))


def test_copies_and_pickles_have_the_same_pixels():
    expected, lazy = _both()
    assert copy.copy(lazy) == copy.deepcopy(lazy_of(PIXELS)) == pickle.loads(pickle.dumps(lazy)) == expected


def test_arrays_of_it_are_read_only():
    _, lazy = _both()
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(lazy)[0] = 1
    assert np.array(lazy).flags.writeable
