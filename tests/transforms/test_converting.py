"""Tensors, PIL images, several crops and Lambda, compared with torchvision's, alone and in a pipeline."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import EpochDraws, draws_for
from fastload.transforms.pipeline import Pipeline
from tests.transforms.samples import keys, picture, to_tensor

v1 = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

SIZE = (37, 53)


@pytest.mark.parametrize("name", ["FiveCrop", "TenCrop"])
def test_several_crops_match_torchvision(name):
    pixels = picture((21, 34))
    ours, theirs = getattr(T, name)((10, 13)), getattr(v2, name)((10, 13))
    for image in (to_tensor(pixels), Image.fromarray(pixels)):
        for mine, other in zip(ours(image), theirs(image), strict=True):
            assert type(mine) is type(other)
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))
    flipped = zip(T.TenCrop(9, True)(to_tensor(pixels)), v2.TenCrop(9, True)(to_tensor(pixels)), strict=True)
    assert all(torch.equal(mine, other) for mine, other in flipped)
    with pytest.raises(OptionError, match=f"{name} of \\(22, 22\\) must fit into the image, got 21x34"):
        getattr(T, name)(22)(pixels)


MODES = ["RGB", "L", "1", "P", "RGBA", "LA", "CMYK", "YCbCr", "I", "F", "I;16"]


@pytest.mark.parametrize("mode", MODES)
def test_tensors_of_pil_images_match_torchvision(mode):
    image = Image.fromarray(picture((9, 7)))
    image = image.convert("L").convert("I").convert(mode) if mode == "I;16" else image.convert(mode)
    for name in ("PILToTensor", "ToImage"):
        ours, theirs = getattr(T, name)()(image), getattr(v2, name)()(image)
        assert torch.equal(ours, theirs.as_subclass(torch.Tensor))
        assert type(ours) is torch.Tensor
    ours, theirs = T.ToTensor()(image), v1.ToTensor()(image)
    assert ours.is_contiguous()
    torch.testing.assert_close(ours, theirs.to(ours.dtype), atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int32])
def test_tensors_of_arrays_match_torchvision(dtype):
    for pixels in (picture((9, 7)).astype(dtype), picture((9, 7))[:, :, 0].astype(dtype)):
        ours, theirs = T.ToTensor()(pixels), v1.ToTensor()(pixels)
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=0)
        assert ours.is_contiguous()


@pytest.mark.parametrize(
    ("shape", "dtype", "mode"),
    [
        ((9, 7, 3), np.uint8, None),
        ((9, 7, 3), np.uint8, "YCbCr"),
        ((9, 7, 4), np.uint8, None),
        ((9, 7, 4), np.uint8, "CMYK"),
        ((9, 7, 2), np.uint8, None),
        ((9, 7, 1), np.uint8, None),
        ((9, 7), np.uint8, "L"),
        ((9, 7, 1), np.int16, None),
        ((9, 7, 1), np.int32, None),
        ((9, 7, 1), np.float32, "F"),
        ((9, 7, 3), np.float32, None),
        ((9, 7, 1), np.float64, None),
    ],
)
def test_pil_images_of_pixels_match_torchvision(shape, dtype, mode):
    pixels = np.random.default_rng(0).random(shape)
    pixels = (pixels if np.issubdtype(dtype, np.floating) else pixels * 255).astype(dtype)
    ours, theirs = T.ToPILImage(mode)(pixels), v1.ToPILImage(mode)(pixels)
    assert ours.mode == theirs.mode
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    if pixels.ndim == 3:
        np.testing.assert_array_equal(np.asarray(T.ToPILImage(mode)(to_tensor(pixels))), np.asarray(theirs))


def test_images_that_pil_cannot_hold_are_refused():
    for pixels, mode in ((np.zeros((4, 4, 5), np.uint8), None), (np.zeros((4, 4, 3), np.uint8), "L")):
        with pytest.raises(OptionError, match="must be given an image that fits the mode"):
            T.ToPILImage(mode)(pixels)


def test_tensors_of_torchvision_become_plain_tensors():
    from torchvision import tv_tensors

    image = tv_tensors.Image(to_tensor(picture((4, 5))))
    assert type(T.ToPureTensor()(image)) is torch.Tensor
    assert T.ToPureTensor()("a") == "a"
    assert T.Identity()(image) is image


def piped(transform, pixels, index=5, seed=3):
    with EpochDraws(seed):
        return Pipeline(transform).run(pixels, draws_for([index]).image(0))


def test_conversions_do_not_change_head_and_tail():
    plain = T.Compose(
        [
            T.RandomResizedCrop(16),
            T.RandomHorizontalFlip(),
            T.ToDtype(torch.float32, scale=True),
            T.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )
    converting = T.Compose(
        [
            T.RandomResizedCrop(16),
            T.RandomHorizontalFlip(),
            T.PILToTensor(),
            T.ToTensor(),
            T.Identity(),
            T.Normalize([0.5] * 3, [0.2] * 3),
            T.ToPureTensor(),
        ]
    )
    pixels = picture(SIZE)
    assert torch.equal(piped(converting, pixels), piped(plain, pixels))
    pipeline = Pipeline(converting)
    assert not pipeline.is_foreign
    drawn_here = pipeline.draw(keys(2), np.array([SIZE] * 2))
    assert drawn_here.body == []
    assert pipeline.tail.dtype == torch.float32
    expected = Pipeline(T.ConvertImageDtype()).tail
    assert np.array_equal(Pipeline(T.ToTensor()).tail.factors, expected.factors)
    # At the beginning, transforms after them are still folded into the decoding.
    assert Pipeline(T.Compose([T.ToImage(), T.CenterCrop(9)])).draw(keys(1), np.array([SIZE])).body == []


def test_lambdas_get_the_same_images_as_torchvisions():
    given = []

    def note(image):
        given.append(image)
        return image

    transform = T.Compose(
        [T.CenterCrop(8), T.Lambda(note), T.ToTensor(), T.Lambda(note), T.Normalize([0.5], [0.5])]
    )
    pixels = picture(SIZE)
    result = piped(transform, pixels)
    assert isinstance(given[0], Image.Image)
    assert given[0].size == (8, 8)
    assert given[1].dtype == torch.float32
    assert given[1].shape == (3, 8, 8)
    theirs = v1.Compose([v1.CenterCrop(8), v1.ToTensor(), v1.Normalize([0.5], [0.5])])
    torch.testing.assert_close(result, theirs(Image.fromarray(pixels)), atol=1e-6, rtol=0)
    assert T.Lambda(note, torch.Tensor)("a") == "a"
    with pytest.raises(OptionError, match="lambd must be callable"):
        T.Lambda(3)


def test_five_crops_in_a_compose_match_torchvision():
    def composed(module):
        crops = module.Lambda(lambda crops: torch.stack([module.ToTensor()(crop) for crop in crops]))
        return module.Compose([module.Resize(30), module.FiveCrop(16), crops])

    pixels = picture(SIZE)
    ours, theirs = piped(composed(T), pixels), composed(v1)(Image.fromarray(pixels))
    assert ours.shape == theirs.shape == (5, 3, 16, 16)
    assert (ours - theirs).abs().max() <= 2 / 255 + 1e-6


def test_a_pipeline_can_end_with_a_pil_image():
    result = piped(
        T.Compose([T.CenterCrop(8), T.ToPILImage(), T.RandomInvert(1.0), T.ToPILImage("YCbCr")]),
        picture(SIZE),
    )
    assert result.mode == "YCbCr"


def test_torchvisions_transforms_get_tensors_after_to_tensor():
    pixels = picture(SIZE)
    ours = T.Compose([T.ToDtype(torch.float32, scale=True), v2.RandomErasing(p=1.0, value=7.0)])
    assert (piped(ours, pixels) == 7).any()


@pytest.mark.parametrize(
    "step", [T.FiveCrop(3), T.TenCrop(3, True), T.ToPILImage("L"), T.Lambda(abs)], ids=repr
)
def test_callables_survive_a_pickle(step):
    assert repr(pickle.loads(pickle.dumps(step))) == repr(step)
