"""MixUp and CutMix, compared with torchvision's, which draws the same numbers from torch's generator."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, default_collate

import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import draws_for
from fastload.transforms.pipeline import Pipeline
from tests.transforms.tolerances import TOLERANCES

v2 = pytest.importorskip("torchvision.transforms.v2")

FORMATS = [torch.contiguous_format, torch.channels_last]
BOTH = pytest.mark.parametrize("name", ["MixUp", "CutMix"])


def batch(dtype=torch.float32, memory_format=torch.contiguous_format, count=7, channels=3, size=(19, 30)):
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (count, channels, *size), generator=generator).to(dtype)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return images.to(memory_format=memory_format), labels


def both(name, images, labels, seed, **options):
    """Return the results of ours and torchvision's for a batch and the same seed."""
    results = []
    for module in (T, v2):
        torch.manual_seed(seed)
        results.append(getattr(module, name)(num_classes=10, **options)(images, labels))
    return results


@BOTH
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_mixed_images_and_labels_match_torchvision(name, memory_format, alpha, count):
    images, labels = batch(memory_format=memory_format, count=count)
    for seed in range(5):
        (ours, our_labels), (theirs, their_labels) = both(name, images / 255, labels, seed, alpha=alpha)
        torch.testing.assert_close(ours, theirs, atol=TOLERANCES["mix"].levels, rtol=0)
        torch.testing.assert_close(our_labels, their_labels, atol=1e-6, rtol=0)
        assert ours.is_contiguous(memory_format=memory_format)


@BOTH
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("channels", [1, 3])
def test_mixed_bytes_match_torchvision_when_rounded(name, memory_format, channels):
    images, labels = batch(torch.uint8, memory_format, channels=channels)
    for seed in range(5):
        torch.manual_seed(seed)
        ours, our_labels = getattr(T, name)(num_classes=10)(images, labels)
        torch.manual_seed(seed)
        theirs, their_labels = getattr(v2, name)(num_classes=10)(images.double(), labels)
        assert ours.dtype == torch.uint8
        assert ours.is_contiguous(memory_format=memory_format)
        torch.testing.assert_close(ours.double(), theirs, atol=TOLERANCES["mix of bytes"].levels, rtol=0)
        torch.testing.assert_close(our_labels, their_labels, atol=1e-6, rtol=0)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept(name, dtype):
    images, labels = batch(dtype)
    mixed, _ = getattr(T, name)(num_classes=10)(images, labels)
    assert mixed.dtype == dtype


@BOTH
def test_non_contiguous_images_are_mixed_too(name):
    images, labels = batch(torch.uint8, size=(20, 60))
    torch.manual_seed(1)
    expected, _ = getattr(T, name)(num_classes=10)(images[:, :, :, ::2].contiguous(), labels)
    torch.manual_seed(1)
    mixed, _ = getattr(T, name)(num_classes=10)(images[:, :, :, ::2], labels)
    assert (mixed.int() - expected.int()).abs().max() <= 1  # half a level may go up or down


@BOTH
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_batch_given_is_not_changed(name, dtype):
    images, labels = batch(dtype)
    before = images.clone(), labels.clone()
    getattr(T, name)(num_classes=10)(images, labels)
    assert torch.equal(images, before[0])
    assert torch.equal(labels, before[1])


@BOTH
def test_lists_and_tuples_keep_their_type(name):
    mix = getattr(T, name)(num_classes=10)
    images, labels = batch()
    results = []
    for arguments in (
        (images, labels),
        ([images, labels],),
        ((images, labels),),
        ([images, labels, "extra"],),
    ):
        torch.manual_seed(0)
        results.append(mix(*arguments))
    assert [type(result) for result in results] == [tuple, list, tuple, list]
    assert results[3][2] == "extra"
    for mixed, shares, *_ in results:
        assert torch.equal(mixed, results[0][0])
        assert torch.equal(shares, results[0][1])


@BOTH
def test_labels_given_as_shares_are_mixed(name):
    images, labels = batch()
    shares = torch.nn.functional.one_hot(labels, 10)
    torch.manual_seed(0)
    _, expected = getattr(T, name)(num_classes=10)(images, labels)
    for given in (shares, shares.float()):
        torch.manual_seed(0)
        _, mixed = getattr(T, name)()(images, given)
        assert torch.equal(mixed, expected)


@pytest.mark.parametrize("p", [None, [1, 3]])
def test_random_choice_draws_mixup_or_cutmix_for_each_batch(p):
    def made(module, seed):
        torch.manual_seed(seed)
        choice = module.RandomChoice(
            [getattr(module, name)(num_classes=10) for name in ("CutMix", "MixUp")], p
        )
        return choice(*batch())

    for seed in range(20):
        for ours, theirs in zip(made(T, seed), made(v2, seed), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_a_choice_of_mixup_and_cutmix_is_copied_and_shown_and_holds_nothing_else():
    choice = T.RandomChoice([T.CutMix(num_classes=10), T.MixUp(alpha=0.5, num_classes=10)])
    shown = repr(choice)
    assert shown.startswith("RandomChoice(transforms=[CutMix(alpha=1.0, num_classes=10, labels_getter")
    assert repr(copy.deepcopy(choice)) == repr(pickle.loads(pickle.dumps(choice))) == shown
    one_image = T.RandomChoice([T.Pad(1), T.Pad(2)])
    assert repr(pickle.loads(pickle.dumps(one_image))) == repr(one_image)
    with pytest.raises(OptionError, match=r"got CutMix.* torchvision.transforms.v2.RandomChoice"):
        T.RandomChoice([T.CutMix(), T.Pad(1)])
    with pytest.raises(OptionError, match="p must be a weight for each of 2 transforms"):
        T.RandomChoice([T.CutMix(), T.MixUp()], p=[1])
    with pytest.raises(OptionError, match="RandomChoice of MixUp and CutMix must be called with a batch"):
        Pipeline(choice).run(np.zeros((4, 4, 3), np.uint8), draws_for([0]))


@BOTH
def test_mixing_works_in_a_collate_function(name):
    mix = getattr(T, name)(num_classes=2)
    dataset = [(torch.full((3, 8, 8), number % 256, dtype=torch.uint8), number % 2) for number in range(8)]
    loader = DataLoader(dataset, batch_size=4, collate_fn=lambda samples: mix(default_collate(samples)))
    for images, labels in loader:
        assert images.shape == (4, 3, 8, 8)
        torch.testing.assert_close(labels.sum(1), torch.ones(4))


@BOTH
def test_mixing_survives_a_pickle_and_shows_its_parameters(name):
    mix = getattr(T, name)(alpha=0.5, num_classes=10)
    images, labels = batch()
    results = []
    for each in (mix, pickle.loads(pickle.dumps(mix)), copy.deepcopy(mix)):
        torch.manual_seed(0)
        results.append(each(images, labels)[0])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert repr(mix) == f"{name}(alpha=0.5, num_classes=10, labels_getter='default')"


@BOTH
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
@pytest.mark.parametrize("memory_format", FORMATS)
def test_mixing_on_a_device_equals_the_cpu(name, dtype, memory_format):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    images, labels = batch(dtype, memory_format)
    torch.manual_seed(0)
    expected, expected_labels = getattr(T, name)(num_classes=10)(images, labels)
    torch.manual_seed(0)
    mixed, mixed_labels = getattr(T, name)(num_classes=10)(images.cuda(), labels.cuda())
    assert mixed.is_cuda
    assert mixed.is_contiguous(memory_format=memory_format)
    assert (mixed.cpu().double() - expected.double()).abs().max() <= (0.25 if dtype == torch.float16 else 1)
    torch.testing.assert_close(mixed_labels.cpu(), expected_labels)


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha must be a number above 0, got 0"),
        ({"alpha": "1"}, "alpha must be a number above 0, got '1'"),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, got 0"),
    ],
)
def test_parameters_are_checked(name, options, message):
    with pytest.raises(OptionError, match=message):
        getattr(T, name)(**options)


@BOTH
def test_batches_are_checked(name):
    images, labels = batch()
    classless = getattr(T, name)()
    mix = getattr(T, name)(num_classes=10)
    for call, arguments, message in (
        (mix, (images,), "must be given images and labels, got Tensor"),
        (mix, ({"image": images},), "takes tensors of images and labels, got Tensor and NoneType"),
        (mix, (images.numpy(), labels), "takes tensors of images and labels, got ndarray and Tensor"),
        (mix, (images[0], labels), "takes uint8, uint16, int16 or floating-point images"),
        (mix, (images.int(), labels), "takes uint8, .* got torch.int32"),
        (mix, (images, labels[1:]), "labels must be .* for 7 images, got torch.int64 \\(6,\\)"),
        (mix, (images, labels.float()), "labels must be whole numbers below num_classes"),
        (classless, (images, labels), "labels must be .* num_classes=None"),
        (
            mix,
            (images, torch.ones(7, 9)),
            "shares of 10 classes, got torch.float32 \\(7, 9\\)",
        ),
        (mix, (images, labels + 8), "labels must be from 0 to 9, got"),
    ):
        with pytest.raises(OptionError, match=message):
            call(*arguments)


def test_shares_follow_the_beta_distribution():
    torch.manual_seed(0)
    images, labels = torch.zeros(2, 1, 1, 1), torch.tensor([0, 1])
    mix = T.MixUp(alpha=0.3, num_classes=2)
    shares = np.array([float(mix(images, labels)[1][0, 0]) for _ in range(3000)])
    # The variance of Beta(a, a) is 1 / (4 (2 a + 1)).
    assert abs(shares.mean() - 0.5) < 0.04
    assert abs(shares.var() - 1 / (4 * 1.6)) < 0.01
