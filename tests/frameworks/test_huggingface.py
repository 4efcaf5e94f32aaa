"""Hugging Face's datasets whose rows a function transforms, compiled: the same rows, for the same seeds."""

from __future__ import annotations

import functools
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fastload
from fastload.datasets.compiled.lazy import LazyImage
from tests.folders import class_folders
from tests.frameworks.batches import seed_all
from tests.images.samples import file_of, photo
from tests.tools import imported

pytestmark = pytest.mark.frameworks("datasets")


@pytest.fixture(scope="module")
def hf() -> Any:
    module = imported("datasets")
    module.disable_caching()
    return module


@pytest.fixture(scope="module")
def rows(hf) -> Any:
    """RGB photos, and an image of every kind that must be decoded by PIL."""
    files = [file_of(photo(80 + index, 90, seed=index), "JPEG") for index in range(6)]
    files += [file_of(photo(70, 60, seed=7), "PNG"), file_of(photo(70, 60, seed=8)[:, :, 0], "JPEG")]
    files += [_saved(mode) for mode in ("CMYK", "P", "RGBA", "L")]
    files += [_saved("RGB", exif=_turned()), _saved("RGB", transparency=(0, 0, 0))]
    images = [{"bytes": file, "path": None} for file in files]
    features = hf.Features({"image": hf.Image(), "label": hf.ClassLabel(names=["a", "b"])})
    labels = [index % 2 for index in range(len(images))]
    return hf.Dataset.from_dict({"image": images, "label": labels}, features=features)


def _saved(mode, **options):
    buffer = io.BytesIO()
    form = "JPEG" if mode == "CMYK" or "exif" in options else "PNG"
    Image.fromarray(photo(64, 80, seed=9)).convert(mode).save(buffer, form, **options)
    return buffer.getvalue()


def _turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def _train():
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(40),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )


TRANSFORM: Any = None


def _helper(image):
    return TRANSFORM(image.convert("RGB"))


def with_a_global(examples):
    examples["pixel_values"] = [_helper(image) for image in examples["image"]]
    return examples


def with_an_argument(examples, transform):
    return {
        "pixel_values": [transform(image.convert("RGB")) for image in examples["image"]],
        "label": examples["label"],
    }


class Processor:
    def __init__(self):
        self.transform = _train()

    def __call__(self, examples):
        return with_an_argument(examples, transform=self.transform)

    def method(self, examples):
        return self(examples)


def _functions():
    transform = _train()

    def with_a_closure(examples):
        examples["pixel_values"] = [transform(image.convert("RGB")) for image in examples["image"]]
        del examples["image"]
        return examples

    return {
        "closure": with_a_closure,
        "global": with_a_global,
        "argument": functools.partial(with_an_argument, transform=transform),
        "object": Processor(),
        "method": Processor().method,
    }


@pytest.mark.parametrize("name", ["closure", "global", "argument", "object", "method"])
def test_rows_are_the_functions_own(rows, monkeypatch, name):
    monkeypatch.setitem(globals(), "TRANSFORM", _train())
    theirs = rows.with_transform(_functions()[name])
    ours = fastload.compile(theirs)
    assert type(ours) is type(theirs)
    assert "while decoding" in fastload.explain(ours)
    for read in (
        lambda dataset: [dataset[index] for index in range(len(rows))],
        lambda dataset: dataset.__getitems__(list(range(len(rows)))),
    ):
        results = []
        for dataset in (theirs, ours):
            seed_all(3)
            results.append((read(dataset), torch.rand(1).item()))
        (expected, after), (found, our_after) = results
        assert after == our_after
        for row, other in zip(found, expected, strict=True):
            assert row.keys() == other.keys()
            assert row["label"] == other["label"]
            assert (row["pixel_values"] - other["pixel_values"]).abs().max() < 0.02
    assert type(_functions()["object"].transform).__name__ == type(TRANSFORM).__name__ == "Compose"


def test_images_are_pils(rows):
    def keep(examples):
        return {"image": examples["image"], "size": [image.size for image in examples["image"]]}

    theirs = rows.with_transform(keep)
    ours = fastload.compile(theirs)
    for row, other in zip(ours, theirs, strict=True):
        assert row["size"] == other["size"]
        assert isinstance(row["image"], Image.Image)
        assert row["image"].mode == other["image"].mode
        assert row["image"].info.get("transparency") == other["image"].info.get("transparency")
        assert np.array_equal(np.asarray(row["image"].convert("RGBA")), other["image"].convert("RGBA"))


def test_photos_are_not_decoded_until_their_pixels_are_asked_for(rows):
    kinds = []
    dataset = rows.with_transform(lambda examples: kinds.append(type(examples["image"][0])) or examples)
    list(fastload.compile(dataset))
    assert kinds[:7] == [LazyImage] * 7
    assert LazyImage not in kinds[7:]
    assert len(kinds) == len(rows)


def test_files_that_are_named_are_read(hf, tmp_path):
    root = class_folders(tmp_path, count=6)
    paths = sorted(str(path) for path in root.rglob("*.jpg"))
    dataset = hf.Dataset.from_dict({"image": paths}).cast_column("image", hf.Image())
    theirs = dataset.with_transform(lambda rows: {"mean": [np.asarray(i).mean() for i in rows["image"]]})
    ours = fastload.compile(theirs)
    assert [row["mean"] for row in ours] == [row["mean"] for row in theirs]


def test_damaged_images_raise_what_they_always_raised(hf):
    data = file_of(photo(80, 90, seed=1), "JPEG")
    images = [{"bytes": each, "path": None} for each in (data[: len(data) // 2], b"no image", b"")]
    features = hf.Features({"image": hf.Image(), "label": hf.Value("int64")})
    dataset = hf.Dataset.from_dict({"image": images, "label": range(3)}, features=features)
    theirs = dataset.with_transform(functools.partial(with_an_argument, transform=_train()))
    ours = fastload.compile(theirs)
    for index in range(3):
        with pytest.raises(OSError) as expected:  # noqa: PT011
            theirs[index]
        with pytest.raises(type(expected.value)) as found:
            ours[index]
        assert str(found.value)[:25] == str(expected.value)[:25]


def test_the_function_and_the_dataset_are_left_as_they_were(rows):
    function = _functions()["closure"]
    cell = function.__closure__[0]
    before = cell.cell_contents
    theirs = rows.with_transform(function)
    ours = fastload.compile(theirs)
    ours[0]
    assert cell.cell_contents is before
    assert theirs.format["format_kwargs"]["transform"] is function
    assert theirs.features == rows.features
    assert fastload.compile(ours) is ours

    def failing(examples):
        before(examples["image"][0])
        raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        fastload.compile(rows.with_transform(failing))[0]


def test_changes_of_the_functions_transforms_are_noticed(rows):
    function = functools.partial(with_an_argument, transform=_train())
    theirs = rows.with_transform(function)
    ours = fastload.compile(theirs)
    shapes = [ours[0]["pixel_values"].shape]
    function.keywords["transform"].transforms[0] = type(_train().transforms[0])(24)
    shapes.append(ours[0]["pixel_values"].shape)
    function.keywords["transform"] = None
    with pytest.raises(TypeError, match="not callable"):
        ours[0]
    function.keywords["transform"] = _train().transforms[2]
    shapes += [ours[0]["pixel_values"].shape, theirs[0]["pixel_values"].shape]
    assert [tuple(shape) for shape in shapes] == [(3, 40, 40), (3, 24, 24), (3, 80, 90), (3, 80, 90)]
    assert "ToTensor" in fastload.explain(ours)


def test_another_function_is_compiled_too(rows):
    ours = fastload.compile(rows.with_transform(functools.partial(with_an_argument, transform=_train())))
    ours.set_transform(functools.partial(with_an_argument, transform=_train().transforms[0]))
    assert ours[0]["pixel_values"].size == (40, 40)
    again = fastload.compile(ours)
    assert "RandomResizedCrop  while decoding" in fastload.explain(again)
    assert again[0]["pixel_values"].size == (40, 40)


def test_it_can_be_sent_to_other_processes(rows):
    ours = fastload.compile(rows.with_transform(functools.partial(with_an_argument, transform=_train())))
    sent = pickle.loads(pickle.dumps(ours))
    for dataset in (ours, sent):
        seed_all(1)
        first = dataset[0]["pixel_values"]
    seed_all(1)
    assert torch.equal(ours[0]["pixel_values"], first)
    assert fastload.explain(sent) == fastload.explain(ours)


def test_batches_of_a_loader_are_torchs(rows, monkeypatch):
    monkeypatch.setitem(globals(), "TRANSFORM", _train())
    dataset = rows.with_transform(with_a_global)

    def collate(samples):
        return torch.stack([each["pixel_values"] for each in samples]), [each["label"] for each in samples]

    results = []
    for loader, options in ((torch.utils.data.DataLoader, {}), (fastload.DataLoader, {"compile": True})):
        seed_all(2)
        options |= {"collate_fn": collate, "shuffle": True, "num_workers": 2}
        results.append(list(loader(dataset, 4, multiprocessing_context="fork", **options)))
    for (images, labels), (ours, our_labels) in zip(*results, strict=True):
        assert labels == our_labels
        assert (images - ours).abs().max() < 0.02


def test_rows_without_a_function_are_left_alone(rows):
    for dataset in (rows, rows.with_format("numpy"), rows.remove_columns("image").with_transform(dict)):
        assert fastload.compile(dataset) is dataset
        assert "left as it is" in fastload.explain(dataset)
