"""Batches equal torch's default_collate of the samples, for every kind of record."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import default_collate

import fastload
import fastload.transforms as T
from fastload import Field, FolderDataset, PackedDataset
from fastload.shards.schema import DTYPES
from tests.folders import encoded, pixels

COUNT = 5


class Samples:
    """Return images of one size with the given values."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        values = {name: column[index] for name, column in self.columns.items()}
        return {"image": pixels(index, 8, 12), **values}


def extremes(dtype):
    """Return values of a dtype at its limits and between them."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.array([True, False, True, True, False])
    if kind == "f":
        return np.array([0.7, -1.25, np.nan, np.inf, np.finfo(dtype).max], dtype)
    return np.array([np.iinfo(dtype).min, 0, 1, 7, np.iinfo(dtype).max], dtype)


PNG = [encoded(pixels(index)[:, :, 0], ".png") for index in range(COUNT)]
ROWS = [np.full((index % 3, 4), index, np.float32) for index in range(COUNT)]

# The fields of each packed dataset, and their values.
SCHEMAS = {
    **{f"label {dtype}": ([Field("label", "scalar", dtype)], extremes(dtype)) for dtype in DTYPES},
    "label vector": ([Field("label", "vector", "float32", (2,))], [[i + 0.5, np.nan] for i in range(COUNT)]),
    "label of no numbers": ([Field("label", "vector", "uint16", (0,))], [[]] * COUNT),
    "label rows": ([Field("label", "ragged", "float32", (4,))], ROWS),
    "label text": ([Field("label", "text")], ["", "é", "a", "b", "c"]),
    "label bytes": ([Field("label", "bytes")], [b"", b"\0", b"a", b"b", b"c"]),
    "label image": ([Field("label", "image", encoding="keep")], PNG),
    "label pixels": ([Field("label", "image", encoding="raw")], PNG),
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Make the datasets by name: packed from Python, from a table, and the files of a folder."""
    root = tmp_path_factory.mktemp("schemas")
    made = {}

    def add(name, source, **options):
        path = root / f"{name.replace(' ', '-')}.fl"
        fastload.pack(source, path, workers=1, **options)
        made[name] = PackedDataset(path)

    for name, (fields, values) in SCHEMAS.items():
        add(name, Samples(label=values), fields=fields)
    add("no fields", Samples(), fields=[])
    everything = [Field(name.split()[1], *rest) for name, rest in _everything().items()]
    columns = {field.name: SCHEMAS[f"label {field.name}"][1] for field in everything[: len(DTYPES)]}
    columns |= {
        "vector": SCHEMAS["label vector"][1], "rows": ROWS, "text": ["a"] * COUNT, "bytes": [b"x"] * COUNT,
        "picture": PNG, "pixels": PNG,
    }  # fmt: skip
    columns["uint64"] = np.arange(COUNT)
    add("everything", Samples(**columns), fields=everything)
    del columns["rows"]
    add("all but rows", Samples(**columns), fields=[field for field in everything if field.name != "rows"])

    (root / "photos").mkdir()
    for index in range(COUNT):
        (root / "photos" / f"{index}.png").write_bytes(encoded(pixels(index, 8 + index % 2), ".png"))
    table = "".join(f"photos/{index}.png,{index + 0.7}\n" for index in range(COUNT))
    (root / "table.csv").write_text("path,label\n" + table)
    add("table", root / "table.csv")
    add("images of two sizes", root / "photos")
    made["folder"] = FolderDataset(root / "photos")
    made["kept"] = PackedDataset(root / "everything.fl", cache="ram")
    return made


def _everything():
    kinds = {f"x {dtype}": ("scalar", dtype) for dtype in DTYPES}
    return kinds | {
        "x vector": ("vector", "float32", (2,)),
        "x rows": ("ragged", "float32", (4,)),
        "x text": ("text",),
        "x bytes": ("bytes",),
        "x picture": ("image", "uint8", (), "keep"),
        "x pixels": ("image", "uint8", (), "raw"),
    }


def outcome(make):
    """Return the result of a call, or the class of its error."""
    try:
        return make()
    except Exception as error:
        return type(error)


def assert_same(actual, expected):
    """Assert equal structures, dtypes, shapes and values, NaN included."""
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(actual.numpy(), expected.numpy())
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for name, value in expected.items():
            assert_same(actual[name], value)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for actual_part, part in zip(actual, expected, strict=True):
            assert_same(actual_part, part)
    else:
        np.testing.assert_equal(actual, expected)


def assert_batch_is_torchs(dataset, indices, **options):
    expected = outcome(lambda: default_collate([dataset[index] for index in indices]))
    loader = fastload.DataLoader(dataset, batch_sampler=[indices], **options)
    assert_same(outcome(lambda: next(iter(loader))), expected)
    assert_same(outcome(lambda: next(iter(TorchLoader(dataset, batch_sampler=[indices])))), expected)


def _named(target):
    return {"target": target, "pair": (1, 0.5)}


def _nothing(target):
    return None


NAMES = [
    *SCHEMAS,
    "no fields",
    "everything",
    "all but rows",
    "table",
    "images of two sizes",
    "folder",
    "kept",
]
TRANSFORMS = [
    None,
    T.CenterCrop(6),
    T.Compose([T.Resize((9, 9)), T.ToDtype(torch.float32, scale=True)]),
    np.array,
]


@settings(max_examples=150)
@given(
    name=st.sampled_from(NAMES),
    indices=st.lists(st.integers(-COUNT, COUNT - 1), min_size=1, max_size=6),
    transform=st.sampled_from(TRANSFORMS),
    target_transform=st.sampled_from([None, None, _named, str, _nothing]),
)
def test_batch_equals_default_collate_of_the_samples(datasets, name, indices, transform, target_transform):
    dataset = datasets[name]
    dataset.transform, dataset.target_transform = transform, target_transform
    assert_batch_is_torchs(dataset, indices, num_workers=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_without_a_transform(datasets, name):
    dataset = datasets[name]
    dataset.transform = dataset.target_transform = None
    for index in range(COUNT):
        assert_batch_is_torchs(dataset, [index], num_workers=0)
    assert_batch_is_torchs(dataset, list(range(COUNT)), num_workers=0)
    torchs = list(TorchLoader(dataset, batch_size=None))
    assert_same(list(fastload.DataLoader(dataset, batch_size=None, num_workers=0)), torchs)


@pytest.mark.parametrize(
    "name", ["label float16", "label bool", "label uint64", "all but rows", "label text"]
)
def test_workers_make_the_same_batches(datasets, name):
    dataset = datasets[name]
    dataset.transform = dataset.target_transform = None
    assert_batch_is_torchs(dataset, list(range(COUNT)), num_workers=1)


@pytest.mark.parametrize("name", [name for name in SCHEMAS if "pixels" not in name])
def test_targets_equal_those_of_the_samples(datasets, name):
    dataset = datasets[name]
    dataset.transform = dataset.target_transform = None
    for target, (_, expected) in zip(dataset.targets, dataset, strict=True):
        np.testing.assert_array_equal(target, expected)
        assert isinstance(target, (int, float, list, str, bytes, np.ndarray))
    assert dataset.classes == []


def test_arrays_of_a_sample_are_writable_copies(datasets):
    dataset = datasets["everything"]
    dataset.transform = dataset.target_transform = None
    sample = dataset[0][1]
    for name in ("vector", "rows", "pixels"):
        sample[name][...] = 1
    assert np.isnan(dataset[0][1]["vector"][1])
