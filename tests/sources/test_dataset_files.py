"""Packing of datasets that only read files: the files are stored byte for byte."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from fastload import FolderDataset
from fastload.errors import OptionError, SourceError
from fastload.shards.schema import Field
from fastload.sources import open_source
from tests.sources.test_dataset import one


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


def inverted(image):
    return Image.eval(image, lambda shade: 255 - shade)


def test_subset_of_a_dataset_that_does_more_has_its_classes(photos, image_folder):
    source = one(Subset(image_folder(photos, transform=inverted), [2]))
    assert (source.kind, source.classes) == ("dataset", ("cat", "dog"))


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


def test_subclass_with_its_own_samples_is_decoded(photos, image_folder):
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
    with pytest.raises(OptionError, match="fields are for a dataset"):
        open_source(photos, [Field.label()])
