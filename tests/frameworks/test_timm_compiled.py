"""timm's datasets and transforms, compiled: what timm itself would give, for the same seeds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data

import fastload
from tests.folders import class_folders
from tests.frameworks.batches import seed_all

# timm's dataset leaves closing the files to PIL, which does so when the image is converted, or dies.
pytestmark = [
    pytest.mark.frameworks("timm"),
    pytest.mark.filterwarnings("ignore:unclosed file <_io.BufferedReader:ResourceWarning"),
]

BILINEAR = {"interpolation": "bilinear"}
TRAIN = {"is_training": True, "color_jitter": None, **BILINEAR}
# Each with the largest difference in levels of 255, for images of a few noisy pixels.
TRANSFORMS = {
    "train": (TRAIN, 2),
    "train, for the prefetcher": ({**TRAIN, "use_prefetcher": True}, 2),
    "train, not normalised": ({**TRAIN, "normalize": False}, 2),
    "train, colours": ({**TRAIN, "color_jitter": 0.4}, 4),
    "train, greys and blurred": ({**TRAIN, "grayscale_prob": 0.5, "gaussian_blur_prob": 0.5}, 4),
    "train, erased": ({**TRAIN, "re_prob": 0.9}, 2),
    "train, erased with noise": ({**TRAIN, "re_prob": 0.9, "re_mode": "pixel", "re_count": 2}, 2),
    "RandAugment": ({**TRAIN, "auto_augment": "rand-m9-mstd0.5"}, 255),
    "AutoAugment": ({**TRAIN, "auto_augment": "original"}, 255),
    "AugMix": ({**TRAIN, "auto_augment": "augmix-m5-w4-d2"}, 255),
    "kept ratio": ({**TRAIN, "train_crop_mode": "rkrc"}, 2),
    "kept ratio, random place": ({**TRAIN, "train_crop_mode": "rkrr"}, 2),
    "random interpolation": ({**TRAIN, "interpolation": "random"}, 60),
    "no augmentation, border": ({**BILINEAR, "crop_border_pixels": 3}, 2),
    "no augmentation": ({**TRAIN, "no_aug": True}, 2),
    "evaluation": (BILINEAR, 2),
    "evaluation, for the prefetcher": ({**BILINEAR, "use_prefetcher": True}, 2),
    "evaluation, squashed": ({**BILINEAR, "crop_mode": "squash"}, 2),
    "evaluation, border": ({**BILINEAR, "crop_mode": "border"}, 2),
    "evaluation, bicubic": ({"interpolation": "bicubic"}, 60),
    "evaluation of TensorFlow's models": ({"tf_preprocessing": False, "crop_pct": 1.0, **BILINEAR}, 2),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return class_folders(tmp_path_factory.mktemp("photos"), count=14)


def _levels(image: Any) -> torch.Tensor:
    image = torch.from_numpy(np.array(image)) if isinstance(image, np.ndarray) else image
    return image.double() * (1 if image.dtype == torch.uint8 else 255 * 0.225)


def _draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_samples_are_timms(timm_data, photos, name):
    options, most = TRANSFORMS[name]
    transform = timm_data.create_transform((3, 48, 40), **options)
    theirs = timm_data.create_dataset("", root=str(photos), transform=transform)
    ours = fastload.compile(theirs)
    assert ours is not theirs
    for index in range(len(theirs)):
        seed_all(index)
        expected, label = theirs[index]
        after = _draws()
        seed_all(index)
        image, our_label = ours[index]
        assert _draws() == after
        assert (our_label, type(image)) == (label, type(expected))
        assert (image.dtype, image.shape) == (expected.dtype, expected.shape)
        scale = 1 if options.get("normalize", True) else 1 / 0.225
        difference = (_levels(image) - _levels(expected)).abs()
        assert difference.max() * scale <= most + 0.01
        assert difference.mean() < 1.5
    seed_all(1)
    expected = [image for image, _ in map(ours.__getitem__, range(6))]
    seed_all(1)
    for (image, _), other in zip(ours.__getitems__(range(6)), expected, strict=True):
        assert torch.allclose(image, other, atol=1e-5)


@pytest.mark.parametrize("use_prefetcher", [False, True])
@pytest.mark.parametrize("is_training", [False, True])
def test_a_created_loader_of_a_compiled_dataset_gives_its_batches(
    timm_data, photos, monkeypatch, use_prefetcher, is_training
):
    results = []
    for kind in (torch.utils.data.DataLoader, fastload.DataLoader):
        monkeypatch.setattr(torch.utils.data, "DataLoader", kind)
        dataset = timm_data.create_dataset("", root=str(photos))
        seed_all(1)
        loader = timm_data.create_loader(
            dataset if kind is torch.utils.data.DataLoader else fastload.compile(dataset),
            input_size=(3, 32, 32),
            batch_size=4,
            is_training=is_training,
            color_jitter=None,
            re_prob=0.5 * is_training,
            num_workers=2,
            use_prefetcher=use_prefetcher,
            device=torch.device("cpu"),
        )
        results.append([batch for _ in range(2) for batch in loader])
    for (images, labels), (our_images, our_labels) in zip(*results, strict=True):
        assert labels.tolist() == our_labels.tolist()
        assert (images - our_images).abs().max() < 0.06


def test_a_damaged_file_is_skipped_as_by_timm(timm_data, photos, tmp_path, caplog):
    root = class_folders(tmp_path, count=6)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    data = files[2].read_bytes()
    files[2].write_bytes(data[: len(data) // 2])
    files[4].write_bytes(b"no image")
    transform = timm_data.create_transform((3, 32, 32), **TRAIN)
    theirs = timm_data.create_dataset("", root=str(root), transform=transform)
    ours = fastload.compile(theirs)
    seed_all(1)
    expected = [theirs[index] for index in range(6)]
    warned = [record.getMessage() for record in caplog.records]
    caplog.clear()
    for read in (lambda: list(map(ours.__getitem__, range(6))), lambda: ours.__getitems__(range(6))):
        seed_all(1)
        for (image, label), (other, other_label) in zip(read(), expected, strict=True):
            assert label == other_label
            assert (image - other).abs().max() < 0.06
        assert [record.getMessage() for record in caplog.records] == warned
        caplog.clear()


def test_other_forms_of_timms_dataset_keep_their_own_samples(timm_data, photos):
    transform = timm_data.create_transform((3, 32, 32), **BILINEAR)
    for options in ({"input_img_mode": "L"}, {"additional_features": ["name"]}):
        theirs = timm_data.ImageDataset(str(photos), transform=transform)
        vars(theirs).update(options)
        ours = fastload.compile(theirs)
        assert isinstance(ours, type(theirs))


def test_crops_are_done_while_decoding(timm_data, photos):
    options = {**TRAIN, "auto_augment": "rand-m9-mstd0.5", "re_prob": 0.5}
    transform = timm_data.create_transform((3, 32, 32), **options)
    text = fastload.explain(timm_data.create_dataset("", root=str(photos), transform=transform))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert "while decoding" in lines["RandomResizedCropAndInterpolation"]
    assert "within two levels" in lines["RandomResizedCropAndInterpolation"]
    assert lines["RandAugment"].endswith("not known")
    assert lines["RandomErasing"].endswith("comes after RandAugment")
