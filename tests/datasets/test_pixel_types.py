"""Scenes, compiled datasets and torchvision's transforms for images of other types than RGB of 8 bits."""

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import fastload
import fastload.transforms as T
from fastload.images.canvas import GREY, level_in
from tests.images.wide import npy_of, scene

TYPES = [("uint16", 4), ("float32", 1), ("float16", 3), ("int16", 7), ("uint8", 6)]


@pytest.fixture(params=TYPES, ids=lambda kind: f"{kind[0]} {kind[1]}")
def packed(request, tmp_path):
    """A packed dataset of eight images with a box each, and these images."""
    dtype, channels = request.param
    images = [scene(48, 56, channels, dtype, seed) for seed in range(8)]
    samples = [
        {"image": image, "boxes": np.array([[4.0, 5, 30, 40]]), "labels": np.array([at % 3])}
        for at, image in enumerate(images)
    ]
    fields = [fastload.Field.boxes("xyxy"), fastload.Field.labels()]
    fastload.pack(samples, tmp_path / "x.fl", encode="raw", fields=fields, workers=1)
    return tmp_path / "x.fl", images


@pytest.mark.parametrize(
    "transform",
    [
        T.Compose([T.Mosaic(40), T.ObjectPerspective(degrees=10, size=40)]),
        T.LetterBox((40, 64)),
        T.Compose([T.RandomAffine(20, (0.1, 0.1), (0.8, 1.2)), T.RandomIoUCrop(), T.Resize((30, 30))]),
    ],
    ids=["mosaic", "letterbox", "affine and crop"],
)
def test_scenes_and_objects_keep_the_type(packed, transform):
    path, images = packed
    dataset = fastload.PackedDataset(path, transform)
    loader = fastload.DataLoader(dataset, 4, num_workers=0, collate_fn=fastload.collate_lists)
    for batch, targets in loader:
        for image, target in zip(batch, targets, strict=True):
            assert image.dtype == getattr(torch, images[0].dtype.name)
            assert image.shape[0] == images[0].shape[2]
            assert target["boxes"].shape[1] == 4


def test_the_margin_of_a_letterbox_has_the_same_grey_in_each_type(packed):
    path, images = packed
    image, _ = fastload.PackedDataset(path, T.LetterBox((48, 80)))[0]
    grey = level_in(GREY, images[0].dtype)
    torch.testing.assert_close(
        image[:, :, 0].double(), torch.full((images[0].shape[2], 48), float(grey)).double(), rtol=1e-3, atol=0
    )
    np.testing.assert_array_equal(image[:, :, 12:68].permute(1, 2, 0).numpy(), images[0])


@pytest.mark.parametrize(("dtype", "channels"), TYPES)
def test_torchvisions_transforms_get_tensors_of_the_type(dtype, channels, tmp_path):
    for number in range(4):
        path = tmp_path / "source" / f"class{number % 2}" / f"{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(npy_of(scene(48, 56, channels, dtype, number)))
    fastload.pack(tmp_path / "source", tmp_path / "x.fl", workers=1)
    transform = v2.Compose(
        [
            v2.CenterCrop(32),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * channels, [0.2] * channels),
        ]
    )
    for dataset in (
        fastload.PackedDataset(tmp_path / "x.fl", transform),
        fastload.FolderDataset(tmp_path / "source", transform),
    ):
        wanted = transform(torch.from_numpy(scene(48, 56, channels, dtype, 2)).permute(2, 0, 1))
        torch.testing.assert_close(dataset[1][0], wanted)
        ours = fastload.DataLoader(dataset, 2, num_workers=1)
        theirs = torch.utils.data.DataLoader(dataset, 2)
        for (mine, _), (other, _) in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


def test_plain_loaders_give_the_same_batches(packed):
    path, _ = packed
    dataset = fastload.PackedDataset(path, T.CenterCrop(32))
    collate = fastload.collate_lists
    ours = fastload.DataLoader(dataset, 3, num_workers=1, collate_fn=collate)
    theirs = torch.utils.data.DataLoader(dataset, 3, num_workers=1, collate_fn=collate)
    for (mine, _), (other, _) in zip(ours, theirs, strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, other, strict=True))
