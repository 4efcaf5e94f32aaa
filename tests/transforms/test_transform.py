"""Behaviour of every transform: types of images, batches, inputs, draws, pickles, reprs."""

import copy
import enum
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import EpochDraws, draws_for
from fastload.transforms.pixels import to_pixels
from tests.transforms.samples import drawn, picture, to_array, to_tensor

v2 = pytest.importorskip("torchvision.transforms.v2")

BYTES = {
    "AugMix": T.AugMix(),
    "AutoAugment": T.AutoAugment(),
    "AutoAugment, CIFAR-10": T.AutoAugment(T.AutoAugmentPolicy.CIFAR10, fill=9),
    "CenterCrop": T.CenterCrop((20, 31)),
    "CenterCrop, padded": T.CenterCrop((60, 31)),
    "ColorJitter": T.ColorJitter(0.4, 0.4, 0.4, 0.2),
    "ConvertImageDtype": T.ConvertImageDtype(),
    "ElasticTransform": T.ElasticTransform(90.0, (2, 3), fill=7),
    "GaussianBlur": T.GaussianBlur((5, 3)),
    "GaussianNoise": T.GaussianNoise(),
    "Grayscale": T.Grayscale(),
    "Grayscale, 3": T.Grayscale(3),
    "Identity": T.Identity(),
    "JPEG": T.JPEG((20, 90)),
    "LetterBox": T.LetterBox((20, 31)),
    "ObjectPerspective": T.ObjectPerspective(20, size=(30, 20)),
    "RandomHSV": T.RandomHSV(),
    "PILToTensor": T.PILToTensor(),
    "Pad": T.Pad((1, 2, 3, 4), 9),
    "RGB": T.RGB(),
    "RandAugment": T.RandAugment(),
    "RandomAdjustSharpness": T.RandomAdjustSharpness(1.7),
    "RandomAffine": T.RandomAffine(30, (0.1, 0.1), (0.8, 1.2), 10, "bilinear"),
    "RandomApply": T.RandomApply([T.ColorJitter(0.5), T.RandomRotation(20)]),
    "RandomAutocontrast": T.RandomAutocontrast(),
    "RandomChannelPermutation": T.RandomChannelPermutation(),
    "RandomChoice": T.RandomChoice([T.ColorJitter(0.5), T.RandomRotation(20)], p=[0.3, 0.7]),
    "RandomCrop": T.RandomCrop(29, padding=(2, 3)),
    "RandomCrop, mirrored": T.RandomCrop(29, padding=4, padding_mode="reflect"),
    "RandomEqualize": T.RandomEqualize(),
    "RandomErasing": T.RandomErasing(0.8, value="random"),
    "RandomGrayscale": T.RandomGrayscale(0.5),
    "RandomHorizontalFlip": T.RandomHorizontalFlip(),
    "RandomInvert": T.RandomInvert(),
    "RandomOrder": T.RandomOrder([T.ColorJitter(0.5), T.RandomCrop(28), T.Compose([T.RandomInvert()])]),
    "RandomPerspective": T.RandomPerspective(0.6, fill=(1, 2, 3)),
    "RandomPhotometricDistort": T.RandomPhotometricDistort(),
    "RandomPosterize": T.RandomPosterize(3),
    "RandomResize": T.RandomResize(20, 21),
    "RandomResizedCrop": T.RandomResizedCrop((20, 24)),
    "RandomRotation": T.RandomRotation(45),
    "RandomRotation, expanded": T.RandomRotation((30, 30), expand=True),
    "RandomShortestSize": T.RandomShortestSize([22], 25),
    "RandomSolarize": T.RandomSolarize(128),
    "RandomVerticalFlip": T.RandomVerticalFlip(),
    "Resize": T.Resize((19, 60)),
    "RandomZoomOut": T.RandomZoomOut(5, (1.5, 1.5), p=1.0),
    "ScaleJitter": T.ScaleJitter((50, 40), (0.5, 0.5)),
    "ClampBoundingBoxes": T.ClampBoundingBoxes(),
    "SanitizeBoundingBoxes": T.SanitizeBoundingBoxes(),
    "ToDtype": T.ToDtype(torch.float32, scale=True),
    "ToImage": T.ToImage(),
    "ToPureTensor": T.ToPureTensor(),
    "ToTensor": T.ToTensor(),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
}
# Defined by Ultralytics; torchvision has no transforms of these names.
NOT_IN_TORCHVISION = (
    *("CopyPaste", "LetterBox", "Mosaic", "ObjectCutMix", "ObjectMixUp", "ObjectPerspective", "RandomHSV"),
)
FLOATS = {"Normalize": T.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])}
EVERY = BYTES | FLOATS
SIZE = (37, 53)

# Transforms that always return a tensor.
TO_TENSORS = ("PILToTensor", "ToImage", "ToTensor")

every = pytest.mark.parametrize("name", EVERY)


def image_for(name, seed=0):
    pixels = picture(SIZE, "photo", seed)
    return pixels.astype(np.float32) / 255 if name in FLOATS else pixels


def torch_seeded(transform, image):
    torch.manual_seed(4)
    return transform(image)


def array_of(result):
    return to_array(result) if isinstance(result, torch.Tensor) else result


def test_every_transform_is_tested():
    kinds = {name: getattr(T, name) for name in T.__all__}
    names = {
        name for name, kind in kinds.items() if issubclass(kind, T.Transform) and kind is not T.Transform
    }
    # Its matrix needs images of one size: see test_distorting.py; this one needs boxes: see test_objects.py;
    # these need a dataset: see datasets/test_scenes.py.
    names -= {"LinearTransformation", "RandomIoUCrop", "Mosaic", "ObjectMixUp", "ObjectCutMix", "CopyPaste"}
    assert {type(transform).__name__ for transform in EVERY.values()} == names


@every
def test_draw_returns_a_row_for_each_image(name):
    transform = EVERY[name]
    rows = drawn(transform, SIZE, 5)
    assert rows.shape == (5, transform.width)
    assert rows.dtype == np.float64
    assert drawn(transform, SIZE, 0).shape == (0, transform.width)


@every
def test_a_batch_equals_its_images(name):
    transform = EVERY[name]
    images = np.stack([image_for(name, seed) for seed in range(7)])
    rows = drawn(transform, SIZE, 7)
    expected = np.stack(
        [transform.apply(image, row) for image, row in zip(images, rows.tolist(), strict=True)]
    )
    result = transform.apply_batch(images.copy(), rows)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@every
def test_a_batch_of_one_equals_the_image(name):
    transform, image = EVERY[name], image_for(name)
    rows = drawn(transform, SIZE, 1)
    expected = transform.apply(image, rows[0].tolist())
    np.testing.assert_array_equal(transform.apply_batch(image[None].copy(), rows)[0], expected)


@every
def test_the_image_given_is_not_changed(name):
    transform, image = EVERY[name], image_for(name)
    before = image.copy()
    image.flags.writeable = False
    for row in drawn(transform, SIZE, 12).tolist():
        transform.apply(image, row)
    np.testing.assert_array_equal(image, before)


@every
def test_strides_make_no_difference(name):
    transform, image = EVERY[name], image_for(name)
    planar = np.moveaxis(np.ascontiguousarray(np.moveaxis(image, 2, 0)), 0, 2)
    part = np.pad(image, ((2, 3), (5, 1), (0, 0)))[2:-3, 5:-1]
    mirrored = np.ascontiguousarray(image[::-1, ::-1])[::-1, ::-1]
    for row in drawn(transform, SIZE, 6).tolist():
        expected = transform.apply(image, row)
        for view in (planar, part, mirrored):
            np.testing.assert_array_equal(transform.apply(view, row), expected)


@every
def test_sizes_and_channels_are_predicted(name):
    transform, image = EVERY[name], image_for(name)
    rows = drawn(transform, SIZE, 6)
    sizes = transform.sizes_after(np.tile(np.array([SIZE]), (6, 1)), rows)
    for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
        assert transform.apply(image, row).shape == (*size, transform.channels_after(3))


@every
def test_the_result_is_of_the_same_type_as_the_image(name):
    transform, pixels = EVERY[name], image_for(name)
    expected = torch_seeded(transform, pixels)
    assert isinstance(expected, torch.Tensor if name in TO_TENSORS else np.ndarray)
    expected = array_of(expected)
    tensor = torch_seeded(transform, to_tensor(pixels))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(to_array(tensor), expected)
    if name in BYTES and name not in TO_TENSORS and expected.dtype == np.uint8:
        image = torch_seeded(transform, Image.fromarray(pixels))
        assert isinstance(image, Image.Image)
        np.testing.assert_array_equal(to_pixels(image), expected)


@pytest.mark.gpu
@every
def test_tensors_of_a_device_stay_there(name):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    transform, tensor = EVERY[name], to_tensor(image_for(name))
    result = torch_seeded(transform, tensor.cuda())
    assert result.is_cuda
    np.testing.assert_array_equal(result.cpu(), torch_seeded(transform, tensor))


@every
def test_one_channel_is_accepted_like_in_torchvision(name):
    if name == "Normalize":
        pytest.skip("has three means")
    transform, pixels = EVERY[name], picture(SIZE, "one")
    flat = array_of(torch_seeded(transform, pixels[:, :, 0]))
    assert flat.ndim == (3 if transform.channels_after(1) == 3 or name in TO_TENSORS else 2)
    expected = array_of(torch_seeded(transform, pixels))
    np.testing.assert_array_equal(flat.reshape(*flat.shape[:2], -1), expected)


@every
def test_calling_with_a_batch_draws_for_each_image(name):
    transform = EVERY[name]
    images = np.stack([image_for(name)] * 3)
    torch.manual_seed(4)
    results = transform(images)
    torch.manual_seed(4)
    tensors = transform(to_tensor(images))
    np.testing.assert_array_equal(to_array(tensors), array_of(results))
    assert len(results) == 3


def parameters(transform, seed, indices, place):
    with EpochDraws(seed):
        draws = draws_for(indices).at(place)
    return transform.draw(draws, np.tile(np.array([SIZE]), (len(indices), 1)))


RANDOM = [
    name
    for name in EVERY
    if name.startswith(("Aug", "Auto", "Color", "Elastic", "Gauss", "JPEG", "Rand", "Triv"))
]

# Transforms that draw the same for every image here.
FIXED = ("RandomResize", "RandomRotation, expanded", "RandomShortestSize", "RandomZoomOut")


@pytest.mark.parametrize("name", RANDOM)
def test_draws_do_not_depend_on_the_batch(name):
    transform = EVERY[name]
    together = parameters(transform, 3, range(30), 1)
    np.testing.assert_array_equal(parameters(transform, 3, [4, 29, 11], 1), together[[4, 29, 11]])
    np.testing.assert_array_equal(parameters(transform, 3, [17], 1), together[[17]])


@pytest.mark.parametrize("name", [name for name in RANDOM if name not in FIXED])
def test_other_epochs_and_positions_draw_other_parameters(name):
    transform = EVERY[name]
    one = parameters(transform, 3, range(30), 1)
    assert not np.array_equal(parameters(transform, 4, range(30), 1), one)
    assert not np.array_equal(parameters(transform, 3, range(30), 2), one)
    assert not np.array_equal(parameters(transform, 3, range(30, 60), 1), one)


@pytest.mark.parametrize("name", RANDOM)
def test_torchs_seed_decides_outside_an_epoch(name):
    transform, pixels = EVERY[name], image_for(name)
    state = np.random.get_state()[1].copy()
    np.testing.assert_array_equal(torch_seeded(transform, pixels), torch_seeded(transform, pixels))
    np.testing.assert_array_equal(np.random.get_state()[1], state)


@every
def test_a_pickled_transform_draws_and_applies_the_same(name):
    transform, image = EVERY[name], image_for(name)
    rows = drawn(transform, SIZE, 4)
    for twin in (pickle.loads(pickle.dumps(transform)), copy.deepcopy(transform)):
        np.testing.assert_array_equal(drawn(twin, SIZE, 4), rows)
        for row in rows.tolist():
            np.testing.assert_array_equal(twin.apply(image, row), transform.apply(image, row))
        assert repr(twin) == repr(transform)


@every
def test_the_repr_is_the_call_that_makes_it(name):
    transform = EVERY[name]
    again = eval(repr(transform), {**vars(T), "torch": torch})
    assert repr(again) == repr(transform)
    np.testing.assert_array_equal(drawn(again, SIZE, 4), drawn(transform, SIZE, 4))


@pytest.mark.parametrize("name", [name for name, each in BYTES.items() if not each.takes_any_dtype])
def test_floats_are_refused_by_transforms_of_bytes(name):
    with pytest.raises(OptionError, match="takes uint8 pixels, got float32: put it before"):
        EVERY[name](picture(SIZE).astype(np.float32))


@pytest.mark.parametrize("name", [name for name, each in EVERY.items() if each.takes_any_dtype])
def test_floats_are_accepted_by_transforms_of_any_dtype(name):
    image = picture(SIZE).astype(np.float32)
    assert array_of(EVERY[name](image)).dtype == np.float32


@pytest.mark.parametrize(
    "image", [None, "photo.jpg", [[1, 2], [3, 4]], np.zeros(4, np.uint8), torch.zeros(4)]
)
def test_objects_that_are_not_images_are_refused(image):
    with pytest.raises(OptionError, match=r"an image must be|must hold an image"):
        T.RandomHorizontalFlip()(image)


@pytest.mark.parametrize("mode", ["I", "I;16", "F"])
def test_pil_images_of_more_than_bytes_are_refused(mode):
    image = Image.fromarray(np.full((4, 5), 3000, np.int32)).convert(mode)
    with pytest.raises(OptionError, match=f"must have 8 bits a channel, got mode '{mode}', which ToTensor"):
        T.CenterCrop(3)(image)
    assert T.Pad(1)(T.PILToTensor()(image)).int().max() == 3000


def test_images_without_pixels_are_refused():
    with pytest.raises(OptionError, match=r"not empty, got ndarray of shape \(0, 4, 3\)"):
        T.Pad(1)(np.zeros((0, 4, 3), np.uint8))


def test_parameters_names_and_defaults_match_torchvision():
    import inspect

    for name in T.__all__:
        is_enum = issubclass(getattr(T, name), enum.Enum)
        if name in ("Transform", *NOT_IN_TORCHVISION) or is_enum:
            continue
        ours = inspect.signature(getattr(T, name)).parameters
        theirs = inspect.signature(getattr(v2, name)).parameters
        common = {key: value for key, value in theirs.items() if key != "transforms"}
        if name not in ("Compose",):
            own = [key for key in ours if key != "flip_idx"]
            assert own == list(theirs)
        for key, value in common.items():
            default = getattr(value.default, "value", value.default)
            assert getattr(ours[key].default, "value", ours[key].default) == default, f"{name}({key})"
