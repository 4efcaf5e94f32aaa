import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import fastload.transforms as T
from fastload import PackedDataset, pack
from fastload.errors import SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source
from tests.folders import pixels


class Samples(list):
    """A list of samples as a minimal dataset."""


def fields_of(samples):
    [source] = open_source(Samples(samples)).values()
    return {field.name: field for field in source.fields}, source


def test_nested_dicts_are_named_by_their_path():
    sample = {"image": pixels(0), "meta": {"id": 3, "by": {"name": "me"}}, "label": 1}
    fields, source = fields_of([sample])
    assert list(fields) == ["meta_id", "meta_by_name", "label"]
    assert source.read(0).values == {"meta_id": 3, "meta_by_name": "me", "label": 1}


def test_lists_of_dicts_become_a_list_for_each_key():
    objects = [{"bbox": [1, 2, 3, 4], "name": "a"}, {"bbox": [5, 6, 7, 8], "name": "b"}]
    fields, source = fields_of([(pixels(0), []), (pixels(1), objects), (pixels(2), objects[:1])])
    assert fields["target_bbox"] == Field("target_bbox", "ragged", "int64", (4,))
    assert fields["target_name"] == Field("target_name", "texts")
    assert source.read(0).values["target_bbox"].shape == (0, 4)
    assert source.read(1).values["target_bbox"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert [source.read(at).values["target_name"] for at in range(3)] == [[], ["a", "b"], ["a"]]


@given(st.lists(st.lists(st.integers(-5, 5), max_size=4), min_size=1, max_size=8))
def test_lists_of_any_lengths_are_kept(lists):
    _, source = fields_of([{"image": b"", "value": each} for each in lists])
    assert [source.read(at).values["value"].tolist() for at in range(len(lists))] == lists


def test_several_targets_and_images_are_fields():
    mask = Image.fromarray(pixels(1)[:, :, 0])
    fields, source = fields_of([(pixels(0), mask, 7)])
    assert [fields[name].kind for name in ("target1", "target2")] == ["image", "scalar"]
    np.testing.assert_array_equal(source.read(0).values["target1"], np.asarray(mask))


@pytest.mark.parametrize("key", ["image", "img", "photo"])
def test_the_image_of_a_dict_is_found(key):
    image = Image.fromarray(pixels(0))
    _, source = fields_of([{"label": 1, key: image}])
    np.testing.assert_array_equal(source.read(0).image, pixels(0))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"a": 1}, {"b": 1}], "value must hold dicts of equal keys"),
        ([[1], [1, 2]], "value must be a list of numbers, or of rows of one length"),
        ({"x": 1, "y": {1, 2}}, "value_y must be a number"),
        (np.zeros((2, 3), "complex64"), "value must be of a dtype among"),
    ],
    ids=["keys", "rows", "set", "dtype"],
)
def test_values_that_cannot_be_stored_are_refused(value, message):
    with pytest.raises(SourceError, match=f"Samples, sample 0: {message}"):
        fields_of([{"image": b"", "value": value}])


def test_names_that_meet_are_refused():
    with pytest.raises(SourceError, match=r"got two \['a_b'\]"):
        fields_of([{"image": b"", "a": {"b": 1}, "a_b": 2}])


def detection(index, count):
    """A target of torchvision's detection reference."""
    corner = torch.arange(2.0 * count).reshape(count, 2)
    return pixels(index, 12, 16), {
        "boxes": torch.cat([corner, corner + 3], 1) + 0.1,
        "labels": torch.arange(count) % 3,
        "masks": (torch.arange(count * 12 * 16).reshape(count, 12, 16) % (3 + index) == 0).to(torch.uint8),
        "image_id": torch.tensor([index]),
        "area": torch.full((count,), 9.0),
        "iscrowd": torch.zeros(count, dtype=torch.int64),
        "keypoints": torch.ones(count, 5, 3) * index,
    }


def test_detection_targets_come_back(tmp_path):
    samples = Samples(detection(index, count) for index, count in enumerate([2, 0, 5]))
    pack(samples, tmp_path / "x.fl", encode="keep", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    for (image, target), (pixels_before, before) in zip(dataset, samples, strict=True):
        assert image.permute(1, 2, 0).numpy().tolist() == pixels_before.tolist()
        for name in ("boxes", "labels", "area", "iscrowd", "keypoints"):
            assert target[name].dtype == before[name].dtype, name
            assert torch.equal(target[name], before[name]), name
        assert int(target["image_id"]) == int(before["image_id"])
        assert target["masks"].dtype == torch.uint8
        assert torch.equal(target["masks"], before["masks"])


def test_masks_of_objects_are_stored_without_loss():
    _, source = fields_of([detection(index, count) for index, count in enumerate([2, 0, 5])])
    for index, count in enumerate([2, 0, 5]):
        stored = source.read(index).values["masks"]
        if count:
            before = detection(index, count)[1]["masks"].numpy()
            np.testing.assert_array_equal(stored.reshape(count, 12, 16), before)
        else:
            assert stored == b""


def test_masks_of_objects_move_with_their_image(tmp_path):
    samples = Samples(detection(index, count) for index, count in enumerate([2, 0, 5]))
    pack(samples, tmp_path / "x.fl", encode="keep", workers=1)
    pack(samples, tmp_path / "half.fl", encode="jpeg", size=(6, 32), workers=1)
    moves = {
        "flip": (T.RandomHorizontalFlip(1), lambda masks: masks.flip(2)),
        "crop": (T.CenterCrop((4, 8)), lambda masks: masks[:, 4:8, 4:12]),
        "pad": (T.Pad(2), lambda masks: torch.nn.functional.pad(masks, (2, 2, 2, 2))),
        "resize": (T.Resize((24, 32)), lambda masks: masks.repeat_interleave(2, 1).repeat_interleave(2, 2)),
    }
    for name, (transform, move) in moves.items():
        dataset = PackedDataset(tmp_path / "x.fl", transform)
        for (_, target), (_, before) in zip(dataset, samples, strict=True):
            assert torch.equal(target["masks"], move(before["masks"])), name
    for (_, target), (_, before) in zip(PackedDataset(tmp_path / "half.fl"), samples, strict=True):
        assert torch.equal(target["masks"], before["masks"][:, 1::2].repeat_interleave(2, 2))


def test_boxes_of_tv_tensors_keep_their_format():
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    boxes = tv_tensors.BoundingBoxes([[1.5, 2, 3, 4]], format="XYWH", canvas_size=(12, 16))
    mask = tv_tensors.Mask(torch.ones(12, 16, dtype=torch.uint8))
    target = {"boxes": boxes, "labels": torch.tensor([1]), "mask": mask}
    fields, source = fields_of([(tv_tensors.Image(torch.zeros(3, 12, 16, dtype=torch.uint8)), target)])
    assert fields["boxes"] == Field.boxes("xywh")
    assert fields["mask"] == Field.mask()
    assert source.read(0).values["boxes"].tolist() == [[1.5, 2, 3, 4]]


def test_boxes_of_an_unknown_format_stay_rows_of_numbers():
    target = {"boxes": torch.rand(2, 4), "labels": torch.tensor([0, 1])}
    fields, source = fields_of([(pixels(0), target)])
    assert fields["boxes"] == Field("boxes", "ragged", "float32", (4,))
    assert "boxes: kept as numbers, which transforms do not move" in source.warnings[0]


@pytest.mark.parametrize("box", [[5, 1, 3, 4], [1, 2, float("nan"), 4], [0.2, 0.3, 0.5, 0.5]], ids=repr)
def test_boxes_that_are_reversed_or_in_other_units_are_refused(box):
    target = {"boxes": torch.tensor([box]), "labels": torch.tensor([0]), "image_id": torch.tensor(7)}
    _, source = fields_of([(pixels(0), target)])
    with pytest.raises(SourceError, match="sample 0: boxes must be finite xyxy boxes in pixels"):
        source.read(0)


def test_masks_with_numbers_beyond_uint8_are_refused():
    image, target = detection(0, 2)
    target["masks"] = target["masks"].to(torch.int32) * 300
    _, source = fields_of([(image, target)])
    with pytest.raises(SourceError, match="masks must hold integers from 0 to 255"):
        source.read(0)
