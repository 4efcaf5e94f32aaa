import pickle
import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, Subset, TensorDataset

from fastload import FolderDataset, PackedDataset
from fastload.errors import OptionError, SourceError
from fastload.packing.job import pack
from fastload.shards.schema import Field
from fastload.sources import DatasetSource, open_source


class Samples(list):
    """A list of samples as a dataset: the smallest there is."""


def one(dataset, fields=None):
    [(split, source)] = open_source(dataset, fields).items()
    assert split == ""
    return source


@pytest.fixture
def photos(make_tree, png):
    """Two classes with three photos."""
    root = make_tree(["cat/1.png", "cat/2.png", "dog/1.png"])
    for path in root.rglob("*.png"):
        path.write_bytes(png)
    return root


def test_samples_are_read_with_key_image_and_label():
    pixels = [np.full((2, 3, 3), shade, np.uint8) for shade in range(3)]
    source = one(Samples(zip(pixels, [4, 5, 6], strict=True)))
    assert (source.kind, source.name, len(source)) == ("dataset", "Samples", 3)
    assert (source.classes, source.warnings, source.size_bytes()) == ((), (), None)
    assert source.fields == (Field.label(),)
    record = source.read(1)
    assert record.key == source.key(1) == "00000001"
    assert record.values == {"label": 5}
    np.testing.assert_array_equal(record.image, pixels[1])
    assert source.sample(2) == [0, 2]


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


def test_target_keeps_the_first_ones_name():
    assert one(Samples([(b"", 0.5), (b"", 1)])).read(1).values == {"target": 1.0}


def test_sample_unlike_the_first_is_named_with_wanted_and_got():
    source = one(Samples([(b"", [1, 2]), (b"", [1, 2, 3])]))
    with pytest.raises(
        SourceError, match=r"Samples, sample 1: target must be int64 of shape \(2,\), got list of 3"
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
        ([1, 2], [1, 2, 3], r"int64 of shape \(2,\)", "list of 3"),
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
def test_what_has_no_dtype_of_its_own_is_taken_where_no_number_changes(first, later):
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


def test_a_sample_unlike_the_first_stops_a_packing_that_may_skip_it(tmp_path):
    image = np.zeros((4, 4, 3), np.uint8)
    samples = Samples([(image, np.float32(0.5)), (image, np.float64(0.1)), (image, np.float32(0.25))])
    with pytest.raises(SourceError, match=r"record 1 .*Samples, sample 1: target must be one float32"):
        pack(samples, tmp_path / "x.fl")
    pack(samples, tmp_path / "y.fl", on_error="skip")
    assert [target["target"] for _, target in PackedDataset(tmp_path / "y.fl")] == [0.5, 0.25]


def test_whatever_a_dataset_raises_names_the_sample():
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
    assert one(Samples()).fingerprint() != one(Samples(), [boxes]).fingerprint()


class Endless(IterableDataset):
    def __iter__(self):
        yield b"", 0


@pytest.mark.parametrize("source", [Endless(), 3, None, iter([]), {1, 2}])
def test_what_is_no_source_is_refused_with_what_is_taken(source):
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


def test_looking_at_a_dataset_leaves_random_states_alone_and_finds_random_samples():
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
    source = one(Random([0, 1]))
    prints = {source.fingerprint(), source.fingerprint()}
    assert drawn() == expected
    assert len(prints) == 2


def test_fingerprint_follows_length_fields_classes_and_samples():
    named = Samples([(b"", 0)])
    named.classes = ["a"]
    grey = np.zeros((2, 3), np.uint8)
    others = [
        Samples([(b"", 0)]),
        named,
        Samples([(b"", 0.5)]),
        Samples([(b"", 0), (b"", 0)]),
        Samples([(b"", 0), (b"", 1)]),
        Samples([(b"", 0), (b"", None)]),
        Samples([(b"x", 0)]),
        Samples([(grey, 0)]),
        Samples([(grey.T, 0)]),
        Samples([(grey + 1, 0)]),
    ]
    assert len({one(other).fingerprint() for other in others}) == len(others)
    assert one(Samples([(grey + 1, 0)])).fingerprint() == one(others[-1]).fingerprint()


def test_image_folder_is_read_from_its_files(photos, image_folder, png):
    source = one(image_folder(photos))
    assert source.kind == "folder"
    assert source.classes == ("cat", "dog")
    assert source.name == str(photos)
    reference = one(photos)
    assert source.fingerprint() == reference.fingerprint()
    assert [source.key(at) for at in range(3)] == ["cat/1.png", "cat/2.png", "dog/1.png"]
    assert source.read(2).image == png
    assert source.read(2).values == {"label": 1}


def test_folder_dataset_is_read_from_its_files(photos):
    assert one(FolderDataset(photos)).kind == "folder"


@pytest.mark.parametrize("kind", ["ImageFolder", "FolderDataset"])
def test_subset_is_read_from_the_files_in_its_order(photos, image_folder, png, kind):
    whole = image_folder(photos) if kind == "ImageFolder" else FolderDataset(photos)
    source = one(Subset(Subset(whole, [1, 2, 0]), torch.tensor([-2, 0, 0])))
    assert (source.kind, source.classes, len(source)) == ("folder", ("cat", "dog"), 3)
    assert [source.key(at) for at in range(3)] == ["dog/1.png", "cat/2.png", "cat/2.png"]
    assert [source.read(at).values["label"] for at in range(3)] == [1, 0, 0]
    assert source.read(0).image == png
    assert len(one(Subset(whole, []))) == 0
    with pytest.raises(SourceError, match="must have indices below 3"):
        open_source(Subset(whole, [3]))


def test_subset_of_a_dataset_that_does_more_has_its_classes(photos, image_folder):
    source = one(Subset(image_folder(photos, transform=inverted), [2]))
    assert (source.kind, source.classes) == ("dataset", ("cat", "dog"))


def test_packed_dataset_as_a_source_is_warned_of(photos, tmp_path):
    pack(photos, tmp_path / "photos.fl", encode="keep")
    packed = PackedDataset(tmp_path / "photos.fl")
    for source in (one(packed), one(Subset(packed, [1]))):
        [warning] = source.warnings
        assert "photos.fl" in warning
        assert "decoded and stored again" in warning


def test_relative_image_folder_is_read_from_its_files(photos, image_folder, monkeypatch):
    monkeypatch.chdir(photos.parent)
    source = one(image_folder("photos"))
    assert source.key(0) == "cat/1.png"
    monkeypatch.chdir("/")
    assert source.read(0).key == "cat/1.png"


def test_files_outside_the_root_get_keys_inside(photos, image_folder):
    dataset = image_folder(photos)
    dataset.samples = [(str(photos / "dog/1.png"), 1)]
    dataset.root = str(photos / "cat")
    source = one(dataset)
    assert source.key(0) == str(photos / "dog/1.png").lstrip("/")
    assert len(source.read(0).image) > 0


def inverted(image):
    return Image.eval(image, lambda shade: 255 - shade)


def my_loader(path):
    return Image.new("RGB", (2, 2))


@pytest.mark.parametrize(
    "options",
    [{"transform": inverted}, {"target_transform": lambda label: label}, {"loader": my_loader}],
)
def test_image_folder_that_does_more_is_decoded(photos, image_folder, options):
    dataset = image_folder(photos, **options)
    source = one(dataset)
    assert source.kind == "dataset"
    assert source.classes == ("cat", "dog")
    np.testing.assert_array_equal(source.read(0).image, dataset[0][0])


def test_subclass_with_samples_of_its_own_is_decoded(photos, image_folder):
    class Named(image_folder):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return {"image": image, "label": label, "path": self.samples[index][0]}

    source = one(Named(photos))
    assert source.kind == "dataset"
    assert source.read(0).values == {"label": 0, "path": str(photos / "cat/1.png")}


def test_image_folder_with_fields_is_decoded(photos, image_folder):
    assert one(image_folder(photos), [Field.label()]).kind == "dataset"


def test_fields_for_a_path_are_refused(photos):
    with pytest.raises(OptionError, match="fields must describe a dataset's samples"):
        open_source(photos, [Field.label()])


def test_dataset_source_can_be_made_directly():
    assert len(DatasetSource([(b"", 0)])) == 1
