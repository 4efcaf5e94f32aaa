"""Samples with objects: transforms, collation, shared memory, torchvision's and Ultralytics' forms."""

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import fastload
import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.draws import EpochDraws, draws_for
from fastload.transforms.pipeline import Pipeline

SEED = 5
COUNT = 12


@pytest.fixture(scope="module")
def yolo(tmp_path_factory):
    """Images of several sizes with bright rectangles, their boxes as polygons, one without objects."""
    root, rng = tmp_path_factory.mktemp("objects") / "yolo", np.random.default_rng(0)
    for folder in ("images/train", "labels/train"):
        (root / folder).mkdir(parents=True)
    for number in range(COUNT):
        height, width = [(64, 96), (80, 60), (50, 50)][number % 3]
        pixels, lines = np.full((height, width, 3), 40, np.uint8), []
        for _ in range(number % 4):
            x, y = rng.integers(0, (width - 22, height - 22))
            cv2.rectangle(pixels, (int(x), int(y)), (int(x) + 19, int(y) + 14), (200, 220, 240), -1)
            ring = [(x, y), (x + 10, y), (x + 20, y), (x + 20, y + 15), (x, y + 15)]
            corners = np.array(ring) / (width, height)
            lines.append(f"{number % 2} " + " ".join(f"{each:.6f}" for each in corners.ravel()))
        assert cv2.imwrite(str(root / f"images/train/{number:02d}.png"), pixels)
        (root / f"labels/train/{number:02d}.txt").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def path(yolo, tmp_path_factory):
    dest = tmp_path_factory.mktemp("packed_objects") / "yolo.fl"
    fastload.pack(yolo, dest, encode="keep", workers=1)
    return dest / "train.fl" if (dest / "train.fl").exists() else dest


def pipeline():
    steps = [T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.ColorJitter(0.2), T.RandomRotation(20)]
    return T.Compose([*steps, T.Resize((48, 48)), T.ToDtype(torch.float32, True), T.SanitizeBoundingBoxes()])


def plain(dataset, transform, index):
    """One sample made step by step: its whole image and its objects."""
    with EpochDraws(SEED):
        draws = draws_for([index])
    image, objects = dataset[index][0].permute(1, 2, 0).numpy(), dataset.annotations(index)
    for place, step in enumerate(Pipeline(transform)._before_tail):
        parameters = step.draw_with(draws.at(place), np.array([image.shape[:2]]), [objects])
        image = step.apply(image, parameters[0].tolist())
        objects = step.apply_to(objects, parameters[0].tolist())
    return torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255, objects.to_target()


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value), name
        else:
            assert str(found[name]) == str(value), name


def test_samples_equal_those_made_step_by_step(path):
    whole, dataset = fastload.PackedDataset(path), fastload.PackedDataset(path, pipeline())
    for index in range(COUNT):
        with EpochDraws(SEED):
            image, target = dataset[index]
        expected, objects = plain(whole, pipeline(), index)
        torch.testing.assert_close(image, expected)
        assert_same(target, objects)


@pytest.mark.parametrize("workers", [0, 2])
def test_lists_of_targets_are_those_of_the_samples(path, workers):
    dataset = fastload.PackedDataset(path, pipeline())
    generator = torch.Generator().manual_seed(3)
    options = {"batch_size": 5, "shuffle": True, "generator": generator, "collate_fn": fastload.collate_lists}
    loader = fastload.DataLoader(dataset, num_workers=workers, **options)
    single = fastload.DataLoader(dataset, num_workers=0, **options)
    epochs = []
    for each in (loader, single):
        generator.manual_seed(3)
        epochs.append(list(each))
    for (images, targets), (expected_images, expected) in zip(*epochs, strict=True):
        assert all(map(torch.equal, images, expected_images))
        for target, wanted in zip(targets, expected, strict=True):
            assert_same(target, wanted)


@pytest.mark.parametrize("workers", [0, 2])
def test_ultralytics_batches_hold_every_object(path, workers):
    dataset = fastload.PackedDataset(path, T.Resize((64, 64)))
    loader = fastload.DataLoader(dataset, 5, num_workers=workers, collate_fn=fastload.collate_ultralytics)
    targets = [dataset[index][1] for index in range(COUNT)]
    first = 0
    for batch in loader:
        images = batch["img"]
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert len(batch["masks"]) == len(images)
        for place, image in enumerate(images):
            assert torch.equal(image, dataset[first + place][0])
            chosen = batch["batch_idx"] == place
            boxes, mask = batch["bboxes"][chosen] * 64, batch["masks"][place]
            expected = targets[first + place]
            corners = torch.cat((boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2), dim=1)
            assert sorted(corners.round().tolist()) == sorted(expected["boxes"].round().tolist())
            assert sorted(batch["cls"][chosen, 0].tolist()) == sorted(expected["labels"].tolist())
            assert mask.max() == len(expected["boxes"])
        first += len(images)
    assert first == COUNT


def test_ultralytics_batches_of_several_sizes_are_refused(path):
    dataset = fastload.PackedDataset(path)
    with pytest.raises(OptionError, match="collate_ultralytics must be given images of one size"):
        fastload.collate_ultralytics([dataset[0], dataset[1]])


def test_default_collation_says_what_to_use_instead(path):
    loader = fastload.DataLoader(fastload.PackedDataset(path, T.Resize((64, 64))), 5, num_workers=0)
    with pytest.raises(OptionError, match=r"collate_fn=fastload\.collate_lists"):
        next(iter(loader))


def test_masks_are_stacked_with_their_images(tmp_path):
    for folder in ("images", "masks"):
        (tmp_path / "road" / folder).mkdir(parents=True)
    for number in range(6):
        mask = np.zeros((40, 60), np.uint8)
        mask[5:25, 8 + number : 30] = 1 + number
        noise = np.random.default_rng(number).integers(0, 255, (40, 60, 2), np.uint8)
        assert cv2.imwrite(str(tmp_path / f"road/images/{number}.png"), np.dstack([noise, mask * 20]))
        assert cv2.imwrite(str(tmp_path / f"road/masks/{number}_mask.png"), mask)
    fastload.pack(tmp_path / "road", tmp_path / "road.fl", encode="keep", workers=1)
    transform = T.Compose([T.RandomCrop((30, 40)), T.RandomHorizontalFlip()])
    dataset = fastload.PackedDataset(tmp_path / "road.fl", transform)
    for workers in (0, 1):
        (images, targets), *_ = fastload.DataLoader(dataset, 6, num_workers=workers)
        assert images.shape == (6, 3, 30, 40)
        assert list(targets) == ["mask"]
        assert torch.equal(images[:, 0], targets["mask"] * 20)
    with EpochDraws(SEED):
        expected = default_collate([dataset[index] for index in range(6)])
        again = default_collate(dataset.__getitems__(range(6)))
    assert torch.equal(again[1]["mask"], expected[1]["mask"])


def test_other_transforms_get_image_and_target(path):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    steps = [v2.ToImage(), v2.RandomHorizontalFlip(1), v2.Resize((32, 32)), v2.SanitizeBoundingBoxes()]
    theirs = fastload.PackedDataset(path, transforms=v2.Compose(steps), tv_tensors=True)
    ours = fastload.PackedDataset(path, T.Compose([T.RandomHorizontalFlip(1), T.Resize((32, 32))]))
    for index in range(COUNT):
        (image, target), (expected, objects) = theirs[index], ours[index]
        assert isinstance(image, tv_tensors.Image)
        assert (image.int() - expected.int()).abs().max() <= 1
        assert isinstance(target["boxes"], tv_tensors.BoundingBoxes)
        torch.testing.assert_close(target["boxes"].as_subclass(torch.Tensor), objects["boxes"])
        assert target["masks"].shape == (len(objects["boxes"]), 32, 32)
        assert all(mask.sum() > 0 for mask in target["masks"])
    loader = fastload.DataLoader(theirs, 4, num_workers=1, collate_fn=fastload.collate_lists)
    assert sum(len(images) for images, _ in loader) == COUNT


def test_foreign_transforms_of_images_alone_are_refused(path):
    dataset = fastload.PackedDataset(path, lambda image: image[::-1])
    with pytest.raises(OptionError, match="pass a function of \\(image, target\\) as `transforms`"):
        dataset[0]
    with pytest.raises(OptionError, match="transforms must be given alone"):
        fastload.PackedDataset(path, T.Pad(1), transforms=lambda image, target: (image, target))


def test_torchvisions_detection_loop_trains_from_a_packed_dataset(path):
    detection = pytest.importorskip("torchvision.models.detection")
    anchors = pytest.importorskip("torchvision.models.detection.anchor_utils")
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 8, 8), torch.nn.ReLU())
    backbone.out_channels = 8
    # Of torchvision's detectors, one whose training calls none of its compiled functions.
    model = detection.RetinaNet(
        backbone, 2, min_size=64, max_size=96, anchor_generator=anchors.AnchorGenerator(((16,),), ((1.0,),))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    transform = T.Compose([T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True)])
    dataset = fastload.PackedDataset(path, transform)
    loader = fastload.DataLoader(dataset, 4, num_workers=1, collate_fn=fastload.collate_lists)
    losses = []
    for _ in range(3):
        for images, targets in loader:
            assert len({image.shape for image in images}) > 1
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
