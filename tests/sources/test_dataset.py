import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fastload import PackedDataset
from fastload.errors import SourceError
from fastload.packing.job import pack
from fastload.shards.schema import Field
from fastload.sources import DatasetSource, open_source


class Samples(list):
    """A list of samples as a minimal dataset."""


def one(dataset, fields=None):
    [(split, source)] = open_source(dataset, fields).items()
    assert split == ""
    return source


def test_samples_are_read_with_key_image_and_label():
    pixels = [np.full((2, 3, 3), shade, np.uint8) for shade in range(3)]
    source = one(Samples(zip(pixels, [4, 5, 6], strict=True)))
    assert (source.kind, source.name, len(source)) == ("dataset", "Samples", 3)
    assert (source.classes, source.warnings) == ((), ())
    assert source.fields == (Field.label(),)
    record = source.read(1)
    assert record.key == source.key(1) == "00000001"
    assert record.values == {"label": 5}
    np.testing.assert_array_equal(record.image, pixels[1])


def test_torchvision_dataset_is_read_as_it_is():
    datasets = pytest.importorskip("torchvision.datasets")
    fake = datasets.FakeData(4, (3, 6, 8), num_classes=3)
    source = one(fake)
    for index in range(4):
        image, label = fake[index]
        record = source.read(index)
        np.testing.assert_array_equal(record.image, image)
        assert record.values == {"label": int(label)}


def test_tensor_dataset_is_read_as_it_is():
    images = torch.randint(256, (3, 3, 4, 5), dtype=torch.uint8)
    targets = torch.rand(3, 2)
    source = one(TensorDataset(images, targets))
    assert source.fields == (Field("target", "vector", "float32", (2,)),)
    np.testing.assert_array_equal(source.read(2).image, images[2].permute(1, 2, 0))
    np.testing.assert_array_equal(source.read(2).values["target"], targets[2])


def test_dict_samples_are_read_by_name():
    source = one(
        Samples(
            [
                {"image": b"x", "label": 1, "caption": "a"},
                {"caption": "b", "label": 2, "image": b"y"},
            ]
        )
    )
    assert source.fields == (Field.label(), Field("caption", "text"))
    assert source.read(1).values == {"label": 2, "caption": "b"}
    assert source.read(1).image == b"y"


def test_given_fields_replace_those_of_the_first_sample():
    boxes = Field("boxes", "ragged", "float32", (4,))
    source = one(Samples([(b"", []), (b"", [[1, 2, 3, 4]])]), [boxes])
    assert source.fields == (boxes,)
    assert source.read(0).values["boxes"].shape == (0, 4)
    assert source.read(1).values["boxes"].tolist() == [[1, 2, 3, 4]]


def test_targets_keep_the_name_of_the_first():
    assert one(Samples([(b"", 0.5), (b"", 1)])).read(1).values == {"target": 1.0}


def test_sample_unlike_the_first_is_named_with_wanted_and_got():
    source = one(Samples([(b"", [1, 2]), (b"", [1, 2.5])]))
    with pytest.raises(
        SourceError, match=r"Samples, sample 1: target must be int64 of shape \(2,\), got list of 2"
    ) as caught:
        source.read(1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("first", "later", "wanted", "got"),
    [
        (np.float32(0.5), np.float64(0.5), "one float32", "float64 of float64"),
        (np.float32(0.5), 0.1, "one float32", "float 0.1"),
        (np.float64(0.5), np.float32(0.5), "one float64", "float32 of float32"),
        (torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64), "one float32", "Tensor of torch.float64"),
        (True, 1, "one bool", "int 1"),
        (1, True, "one int64", "bool True"),
        (1, 1.0, "one int64", "float 1.0"),
        (1, 2**63, "one int64", "int 9223372036854775808"),
        (1, 2**70, "one int64", "int 1180591620717411303424"),
        (0.5, 2**53 + 1, "one float64", "int 9007199254740993"),
        (np.uint8([1, 2]), np.int64([1, 2]), r"uint8 of shape \(2,\)", "ndarray of int64"),
        (np.zeros((1, 4), "f4"), np.zeros((1, 4)), "any number of rows, float32", "ndarray of float64"),
        ([1, 2], [1.5, 2.0], r"int64 of shape \(2,\)", "list of 2"),
        ("a", b"a", "text", "bytes"),
        ("a", 1, "text", "int 1"),
    ],
)
def test_sample_of_another_type_than_the_first_is_refused_and_never_converted(first, later, wanted, got):
    for samples in (
        [{"image": b"", "value": first}, {"image": b"", "value": later}],
        [(b"", {"value": first}), (b"", {"value": later})],
    ):
        with pytest.raises(SourceError, match=f"Samples, sample 1: value must be {wanted}.*, got {got}"):
            one(Samples(samples)).read(1)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (0.5, 1),
        (np.int32(5), 6),
        (np.float32(0.5), 3),
        ([0.5, 1], [1, 2]),
        (np.zeros((1, 4), "f4"), []),
        (np.zeros((1, 4), "f4"), np.zeros((0, 4))),
        (np.zeros((1, 4), ">f4"), np.ones((2, 4), "<f4")),
    ],
)
def test_values_without_a_dtype_are_taken_if_no_number_changes(first, later):
    value = one(Samples([(b"", {"x": first}), (b"", {"x": later})])).read(1).values["x"]
    np.testing.assert_array_equal(np.asarray(value).ravel(), np.asarray(later).ravel())


@pytest.mark.parametrize("label", [np.uint8(3), np.int64(3), torch.tensor(3), 3])
def test_a_label_is_an_integer_of_any_dtype(label):
    assert one(Samples([(b"", 1), (b"", label)])).read(1).values == {"label": 3}


@pytest.mark.parametrize(
    "later", [{"image": b"", "a": 1, "b": 2}, {"image": b""}, {"image": b"", "b": 1}, (b"", 1), (b"", 0.5)]
)
def test_sample_with_other_names_than_the_first_is_refused(later):
    for first in ({"image": b"", "a": 1}, (b"", {"a": 1})):
        with pytest.raises(SourceError, match=r"Samples, sample 1: must hold the fields \['a'\], got"):
            one(Samples([first, later])).read(1)


def test_a_sample_unlike_the_first_stops_packing_even_with_skip(tmp_path):
    image = np.zeros((4, 4, 3), np.uint8)
    samples = Samples([(image, np.float32(0.5)), (image, np.float64(0.1)), (image, np.float32(0.25))])
    with pytest.raises(SourceError, match=r"record 1 .*Samples, sample 1: target must be one float32"):
        pack(samples, tmp_path / "x.fl")
    pack(samples, tmp_path / "y.fl", on_error="skip")
    assert [target["target"] for _, target in PackedDataset(tmp_path / "y.fl")] == [0.5, 0.25]


def test_any_error_of_a_dataset_names_the_sample():
    class Failing(Samples):
        def __getitem__(self, index):
            if index == 1:
                raise FileNotFoundError(2, "No such file or directory", "x.jpg")
            return super().__getitem__(index)

    source = one(Failing([(b"", 0), (b"", 1)]))
    with pytest.raises(SourceError, match=r"Failing, sample 1: FileNotFoundError: .*x\.jpg") as caught:
        source.read(1)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_unusable_first_sample_is_named_at_once():
    with pytest.raises(SourceError, match=r"Samples, sample 0: target must be .* got NoneType"):
        open_source(Samples([(b"", None)]))
    with pytest.raises(SourceError, match=r"Samples, sample 0: .*identifier"):
        open_source(Samples([{"image": b"", "bounding box": 1}]))


def test_empty_dataset_has_the_given_fields_or_a_label():
    boxes = Field("boxes", "ragged", "float32", (4,))
    assert (len(one(Samples())), one(Samples()).fields) == (0, (Field.label(),))
    assert one(Samples(), [boxes]).fields == (boxes,)


class Endless(IterableDataset):
    def __iter__(self):
        yield b"", 0


@pytest.mark.parametrize("source", [Endless(), 3, None, iter([]), {1, 2}])
def test_an_object_that_is_not_a_source_is_refused(source):
    with pytest.raises(SourceError, match=r"must be a folder .*table.*dataset.*, got \w+"):
        open_source(source)


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (["a", "b"], ("a", "b")),
        ([("tench", "Tinca"), ("x",)], ("tench, Tinca", "x")),
        (3, ()),
        ([0, 1], ("0", "1")),
    ],
)
def test_class_names_come_from_the_dataset(classes, names):
    dataset = Samples([(b"", 0)])
    dataset.classes = classes
    assert one(dataset).classes == names


def test_describing_a_dataset_by_its_first_sample_keeps_random_states():
    class Random(Samples):
        def __getitem__(self, index):
            return np.random.randint(0, 255, (2, 2), np.uint8), random.random() + torch.rand(()).item()

    def drawn():
        return random.random(), np.random.random(), torch.rand(()).item()

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = drawn()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    one(Random([0, 1]))
    assert drawn() == expected


def test_dataset_source_can_be_made_directly():
    assert len(DatasetSource([(b"", 0)])) == 1
