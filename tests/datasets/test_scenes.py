"""Mosaics and mixtures of a dataset's images: the same in samples and batches, for any workers and resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fastload
import fastload.transforms as T
from fastload.errors import OptionError
from fastload.transforms.annotations import Annotations
from fastload.transforms.draws import EpochDraws, draws_for
from fastload.transforms.pipeline import Pipeline
from tests.folders import encoded, pixels

COUNT = 20
SIZE = 64

MOSAIC = (T.Mosaic(SIZE), T.ObjectPerspective(size=(SIZE, SIZE)))
TAIL = (T.RandomHSV(0.015, 0.7, 0.4), T.RandomHorizontalFlip())
PIPELINES = {
    "mosaic": T.Compose([*MOSAIC, *TAIL]),
    "mosaic of the batch": T.Compose([T.Mosaic(SIZE, among="batch"), *MOSAIC[1:], *TAIL]),
    "mosaic or none": T.Compose([T.Mosaic(SIZE, p=0.5), T.LetterBox(SIZE), *TAIL]),
    "mixed": T.Compose(
        [
            *MOSAIC,
            T.ObjectMixUp(T.Compose(MOSAIC), p=0.5),
            T.ObjectCutMix(T.Compose(MOSAIC), p=0.5),
            T.CopyPaste(T.Compose(MOSAIC), p=0.5, mode="mixup"),
            *TAIL,
        ]
    ),
    "turned": T.Compose(
        [T.Mosaic(SIZE), T.CopyPaste(p=0.5), T.ObjectPerspective(30, shear=5, size=(SIZE, SIZE)), *TAIL]
    ),
}


class Boxed(fastload.FolderDataset):
    """Images with two objects each, whose labels are the image's number."""

    def annotations_of(self, positions, sizes):
        found = []
        for number, (height, width) in zip(positions.tolist(), sizes.tolist(), strict=True):
            boxes = np.array(
                ((2, 2, width - 2, height / 2), (width / 2, 4, width - 4, height - 4)), np.float32
            )
            rings = [[box[[0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)] for box in boxes]
            found.append(Annotations((height, width), boxes, np.array((number, number)), rings))
        return found

    def targets_of(self, positions, annotations=None):
        return [objects.to_target() for objects in annotations]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("scenes")
    for number in range(COUNT):
        image = pixels(number, 40 + 3 * number, 64 if number % 2 else 90)
        (root / f"{number:02}.jpg").write_bytes(encoded(image))
    return root


def loaded(folder, transform, **options):
    loader = fastload.DataLoader(
        Boxed(folder, transform), 4, shuffle=True, collate_fn=fastload_lists, seed=3, **options
    )
    return loader


def fastload_lists(samples):
    return torch.stack([image for image, _ in samples]), [target for _, target in samples]


def assert_same(batches, expected):
    assert len(batches) == len(expected)
    for (images, targets), (others, wanted) in zip(batches, expected, strict=True):
        assert torch.equal(images, others)
        for target, other in zip(targets, wanted, strict=True):
            assert torch.equal(target["boxes"], other["boxes"])
            assert torch.equal(target["labels"], other["labels"])


@pytest.mark.parametrize("name", PIPELINES)
def test_samples_have_one_size_and_boxes_within(folder, name):
    for images, targets in loaded(folder, PIPELINES[name], num_workers=0):
        assert images.shape == (4, 3, *(2 * (SIZE,)))
        for target in targets:
            boxes = target["boxes"]
            assert len(boxes) == len(target["labels"]) == len(target["polygons"])
            assert (boxes[:, 2:] > boxes[:, :2]).all()
            assert ((boxes >= 0) & (boxes <= SIZE)).all()


@pytest.mark.parametrize("name", ["mosaic of the batch", "mixed"])
def test_batches_are_the_same_for_any_workers_and_after_a_resume(folder, name):
    alone = list(loaded(folder, PIPELINES[name], num_workers=0))
    assert_same(list(loaded(folder, PIPELINES[name], num_workers=2)), alone)
    begun = loaded(folder, PIPELINES[name], num_workers=0)
    batches = iter(begun)
    for _ in range(2):
        next(batches)
    resumed = loaded(folder, PIPELINES[name], num_workers=0)
    resumed.load_state_dict(begun.state_dict())
    assert_same(list(resumed), alone[2:])


def test_a_sample_does_not_depend_on_its_batch(folder):
    data = Boxed(folder, PIPELINES["mosaic"])
    with EpochDraws(1):
        batch = data.__getitems__([3, 0, 11])
        singles = [data[index] for index in (3, 0, 11)]
    for (image, target), (other, wanted) in zip(batch, singles, strict=True):
        assert torch.equal(image, other)
        assert torch.equal(target["boxes"], wanted["boxes"])


def test_others_come_from_the_batch_if_asked_for(folder):
    data = Boxed(folder, T.Mosaic(SIZE, among="batch"))
    with EpochDraws(1):
        labels = {int(label) for _, target in data.__getitems__([3, 5, 7]) for label in target["labels"]}
        assert labels == {3, 5, 7}
        data.transform = T.Mosaic(SIZE)
        labels = {int(label) for _, target in data.__getitems__([3, 5, 7]) for label in target["labels"]}
    assert len(labels) > 3


def test_regions_make_the_pixels_of_whole_images(folder):
    """Decoded regions, and images decoded once for several scenes, give what whole images give."""
    data = Boxed(folder)
    whole = {index: data[index][0].permute(1, 2, 0).numpy() for index in range(COUNT)}

    class Whole(Boxed):
        def source_of(self, positions):
            source = super().source_of(positions)
            region = source.region
            numbers = positions.tolist()
            source.region = lambda position, box, size: whole[numbers[position]][
                box.top : box.top + box.height, box.left : box.left + box.width
            ]
            assert region is not source.region
            return source

    for transform in (PIPELINES["mosaic"], PIPELINES["mosaic of the batch"]):
        with EpochDraws(2):
            made = Boxed(folder, transform).__getitems__(list(range(8)))
            expected = Whole(folder, transform).__getitems__(list(range(8)))
        for (image, _), (other, _) in zip(made, expected, strict=True):
            assert torch.equal(image, other)


def test_exact_pixels_differ_little(folder):
    """The fast way against the plain one, in the same pipeline with the same numbers."""
    made = []
    for exact in (False, True):
        steps = [T.Mosaic(SIZE, exact=exact), *MOSAIC[1:], *TAIL]
        with EpochDraws(4):
            made.append(Boxed(folder, T.Compose(steps)).__getitems__(list(range(COUNT))))
    for (image, target), (other, wanted) in zip(*made, strict=True):
        # Neighbours in noise of 96 levels differ by 32 on average: a tenth of a pixel changes that by 3.
        assert (image.float() - other.float()).abs().mean() < 3
        assert torch.equal(target["boxes"], wanted["boxes"])


def test_mosaics_need_objects(folder):
    data = fastload.FolderDataset(folder, T.Mosaic(SIZE))
    with pytest.raises(OptionError, match="dataset with objects"):
        data[0]
    with pytest.raises(OptionError, match="be given other images"):
        T.Mosaic(SIZE)(np.zeros((8, 8, 3), np.uint8))


def test_mosaics_come_first(folder):
    for steps in ([T.RandomHSV(), T.Mosaic(SIZE)], [T.ColorJitter(), T.Mosaic(SIZE)]):
        with pytest.raises(OptionError, match=r"first transform|at the beginning"):
            Boxed(folder, T.Compose(steps))[0]


def test_mixtures_need_one_size(folder):
    data = Boxed(folder, T.Compose([*MOSAIC, T.ObjectMixUp(p=1.0)]))
    with pytest.raises(OptionError, match="as pre_transform"):
        data[0]


def test_letterbox_and_colours_work_with_labels_of_images(folder):
    data = fastload.FolderDataset(folder, T.Compose([T.LetterBox(SIZE), T.RandomHSV()]))
    image, label = data[0]
    assert image.shape == (3, SIZE, SIZE)
    assert label == -1
    images, labels = next(iter(fastload.DataLoader(data, 4, num_workers=0)))
    assert images.shape == (4, 3, SIZE, SIZE)
    assert labels.tolist() == [-1] * 4


# OpenCV rounds positions to 1/32 of a pixel, otherwise for a part of the canvas than for the whole: between
# pixels that differ by all 255 levels, that makes 8.
@pytest.mark.parametrize(
    ("step", "most"), [(T.RandomHSV(), 0), (T.ObjectPerspective(10, shear=2), 8)], ids=["colours", "matrix"]
)
def test_scenes_of_one_image_equal_whole_images_step_by_step(folder, step, most):
    steps = T.Compose([T.LetterBox(SIZE), step, T.RandomCrop(30)])
    data, plain = fastload.FolderDataset(folder, steps), fastload.FolderDataset(folder)
    with EpochDraws(6):
        for index in range(COUNT):
            pipeline, draws = Pipeline(steps), draws_for([index])
            image = steps.transforms[0].apply(plain[index][0].permute(1, 2, 0).numpy(), ())
            image = step.apply(image, pipeline.scenes.draw(draws, np.zeros((1, 2), np.int64))[0].tolist())
            expected = pipeline.run(image, draws)
            assert (data[index][0].int() - expected.int()).abs().max() <= most


@pytest.mark.parametrize("encode", ["keep", "jpeg"])
def test_packed_datasets_make_mosaics(folder, tmp_path, encode):
    yolo = tmp_path / "yolo"
    (yolo / "images" / "train").mkdir(parents=True)
    (yolo / "labels" / "train").mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())[:8]):
        (yolo / "images" / "train" / path.name).write_bytes(path.read_bytes())
        line = f"{number} 0.5 0.5 0.5 0.5\n"
        (yolo / "labels" / "train" / path.with_suffix(".txt").name).write_text(line)
    [split] = fastload.pack(yolo, tmp_path / "packed.fl", encode=encode, workers=1).splits
    data = fastload.PackedDataset(split.path, PIPELINES["mixed"])
    loader = fastload.DataLoader(
        data, 4, shuffle=True, num_workers=0, collate_fn=fastload.collate_ultralytics
    )
    batches = list(loader)
    assert [batch["img"].shape for batch in batches] == [(4, 3, SIZE, SIZE)] * 2
    boxes = torch.cat([batch["bboxes"] for batch in batches])
    assert len(boxes) > 8
    assert ((boxes >= 0) & (boxes <= 1)).all()
