"""Records without an image: packed, verified, read, loaded and unpacked like any other."""

import csv
import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils.data import default_collate

import fastload
import fastload.transforms as T
from fastload import Field, OptionError, PackedDataset, SourceError, pack, unpack, verify
from fastload.shards.manifest import read_manifest
from fastload.shards.schema import DTYPES
from tests.folders import encoded, pixels

COUNT = 200

CONTAINERS = pytest.mark.parametrize("container", ["hdf5", "lmdb"])

INTEGERS = {name: np.iinfo(name) for name in DTYPES if "int" in name}
SHAPES = hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = ["a", "b_2", "text", "label", "vector", "Z"]


@st.composite
def kinds(draw):
    """Draw how the values of one field are made: a strategy of values, all of one field."""
    dtype = draw(st.sampled_from(list(DTYPES)))
    shape = draw(SHAPES)
    array = hnp.arrays(dtype, shape)
    ragged = st.integers(0, 3).flatmap(lambda rows: hnp.arrays(dtype, (rows, *shape)))
    numbers = st.integers(-(2**63), 2**63 - 1) | st.nothing()
    floats = st.floats(width=64)
    return draw(
        st.sampled_from(
            [
                (None, TEXT),
                (None, numbers),
                (None, floats),
                (None, st.booleans()),
                (None, st.binary(max_size=8)),
                (None, array),
                (Field("x", "ragged", dtype, shape), ragged),
                (Field("x", "texts"), st.lists(TEXT, max_size=3)),
            ]
        )
    )


@st.composite
def datasets(draw):
    """Draw samples that are dicts, and the fields that describe them, None if the first sample shows them."""
    made = {name: draw(kinds()) for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))}
    samples = [
        {name: draw(values) for name, (_, values) in made.items()} for _ in range(draw(st.integers(1, 5)))
    ]
    if all(described is None for described, _ in made.values()):
        return samples, None
    first = {name: samples[0][name] for name, (described, _) in made.items() if described is None}
    shown = fastload.sources.DatasetSource([first]).fields if first else ()
    described = [Field(name, each.kind, each.dtype, each.shape) for name, (each, _) in made.items() if each]
    return samples, [*shown, *described]


def assert_same(got, wanted):
    """Check values of any kind for equality, with NaN equal to itself."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        for name, value in wanted.items():
            assert_same(got[name], value)
    elif isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, (str, bytes)):
        assert got == wanted
    else:
        assert np.asarray(got).dtype == np.asarray(wanted).dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))


def as_python(value, field):
    """Return a value as PackedDataset gives it: labels and numbers of Python's dtypes become Python's."""
    if field == Field.label():
        return int(value)
    if not isinstance(value, np.generic) and not (isinstance(value, np.ndarray) and value.ndim == 0):
        return value
    return value.item() if value.dtype in ("bool", "int64", "uint64", "float64") else value[()]


class Pairs:
    """A dataset of (vector, number)."""

    classes = ("even", "odd")

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return np.arange(4, dtype=np.float32) + index, index % 2


class Captions:
    """A dataset of dicts: an embedding beside an id and a caption."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return {"id": index, "vector": np.arange(4, dtype=np.float32) + index, "text": f"line {index} é"}


@CONTAINERS
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=datasets(), shard_size=st.sampled_from(["256MB", 4096]))
def test_records_of_all_kinds_round_trip(tmp_path_factory, container, made, shard_size):
    samples, fields = made
    folder = tmp_path_factory.mktemp("round")
    path = folder / "x.fl"
    pack(samples, path, format=container, fields=fields, workers=1, shard_size=shard_size)
    stored = read_manifest(path).fields
    wanted = [{field.name: as_python(sample[field.name], field) for field in stored} for sample in samples]
    assert verify(path, check="pixels", workers=1).damages == ()
    dataset = PackedDataset(path, verify="always")
    assert_same([dataset[index] for index in range(len(samples))], wanted)
    assert_same(list(fastload.DataLoader(dataset, 2, num_workers=0, collate_fn=list)), _in_pairs(wanted))
    _check_unpacked(path, folder / "out", wanted)


def _in_pairs(samples):
    return [samples[begin : begin + 2] for begin in range(0, len(samples), 2)]


def _check_unpacked(path, dest, wanted):
    """Check that a table holds all texts and numbers, and that the result names all other fields."""
    fields = read_manifest(path).fields
    columns = [field.name for field in fields if field.kind in ("scalar", "text")]
    result = unpack(path, dest)
    assert sorted(result.unwritten) == sorted({field.name for field in fields} - {*columns})
    assert (result.table is not None) == bool(columns)
    if columns and not any("\0" in str(sample[name]) for sample in wanted for name in columns):
        with result.table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        values = [[np.asarray(sample[name]).item() for name in columns] for sample in wanted]
        assert rows == [columns, *([str(value) for value in row] for row in values)]


@settings(max_examples=8, deadline=None)
@given(made=datasets())
def test_batches_are_those_of_default_collate(tmp_path_factory, made):
    samples, fields = made
    path = tmp_path_factory.mktemp("batches") / "x.fl"
    pack(samples, path, fields=fields, workers=1)
    dataset = PackedDataset(path)
    try:
        wanted = default_collate([dataset[index] for index in range(len(samples))])
    except (RuntimeError, TypeError, ValueError):
        # Shapes that differ; Python's lists of different lengths; integers above those of torch.
        assume(False)
    [batch] = fastload.DataLoader(dataset, len(samples), num_workers=0)
    assert_same(batch, wanted)


@CONTAINERS
@pytest.mark.parametrize("cache", [None, "ram", "tmpfs", "auto"])
def test_samples_have_the_form_that_they_had(tmp_path, container, cache):
    for name, samples in (("pairs", Pairs()), ("captions", Captions())):
        path = tmp_path / f"{name}.fl"
        pack(samples, path, format=container, workers=2, shard_size=4096)
        dataset = PackedDataset(path, cache=cache)
        assert len(dataset.shard_sizes) > 1
        for _ in range(2):
            assert_same(
                [dataset[index] for index in range(COUNT)], [samples[index] for index in range(COUNT)]
            )
        for workers in (0, 2):
            loader = fastload.DataLoader(dataset, 16, num_workers=workers)
            torchs = torch.utils.data.DataLoader(samples, 16)
            for batch, wanted in zip(loader, torchs, strict=True):
                assert_same(batch, wanted)


@pytest.mark.parametrize(
    "samples",
    [
        [("a text", 3), ("", 4)],
        [(np.zeros((2, 3), np.float32), "x"), (np.ones((2, 3), np.float32), "")],
        [(np.zeros(2, np.float32),), (np.ones(2, np.float32),)],
        [torch.zeros(3).numpy(), torch.ones(3).numpy()],
        ["one", "zwei ü"],
        [1.5, 2.5],
        [(1, 2, 3), (4, 5, 6)],
        [(np.float16(0.1), np.float32(0.1), np.uint8(3)), (np.float16(2), np.float32(3), np.uint8(4))],
        [(np.zeros(2), {"a": 1, "b": "x"}), (np.ones(2), {"a": 2, "b": "y"})],
        [({"ids": np.arange(3), "mask": np.ones(3)}, 1), ({"ids": np.arange(3), "mask": np.zeros(3)}, 0)],
    ],
    ids=[
        "text",
        "matrix",
        "one",
        "bare vector",
        "bare text",
        "bare number",
        "three",
        "small numbers",
        "dict target",
        "dict",
    ],
)
def test_tuples_and_bare_values_come_back_as_such(tmp_path, samples):
    pack(samples, tmp_path / "x.fl", workers=1)
    wanted = samples
    if isinstance(samples[0], tuple) and isinstance(samples[0][0], dict):
        wanted = [({f"input_{name}": each for name, each in first.items()}, rest) for first, rest in samples]
    dataset = PackedDataset(tmp_path / "x.fl")
    assert_same([dataset[0], dataset[1]], wanted)
    assert type(dataset[0]) is type(wanted[0]) or isinstance(wanted[0], np.ndarray)
    [batch] = fastload.DataLoader(dataset, 2, num_workers=0)
    assert_same(batch, default_collate(wanted))


def test_texts_of_a_batch_are_a_list_in_a_dict_and_a_tuple_in_a_tuple(tmp_path):
    pack([(f"text {at}", {"word": "a", "number": at}) for at in range(4)], tmp_path / "x.fl", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    [batch] = fastload.DataLoader(dataset, 4, num_workers=0)
    wanted = default_collate([dataset[at] for at in range(4)])
    assert (
        (type(batch[0]), type(batch[1]["word"]))
        == (type(wanted[0]), type(wanted[1]["word"]))
        == (tuple, list)
    )


def test_target_transform_gets_the_sample(tmp_path):
    pack(Pairs(), tmp_path / "x.fl", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl", target_transform=lambda pair: pair[1])
    assert [dataset[0], dataset[1]] == [0, 1]
    assert dataset.targets == [index % 2 for index in range(COUNT)]
    assert dataset.classes == ["even", "odd"]


@pytest.mark.parametrize(
    "option",
    [{"transform": T.Resize(4)}, {"transforms": print}, {"reducing_gap": 2}, {"apply_orientation": True}],
)
def test_parameters_for_images_are_refused(tmp_path, option):
    pack(Pairs(), tmp_path / "x.fl", workers=1)
    with pytest.raises(OptionError, match=r"for images, and its records have none: leave it out"):
        PackedDataset(tmp_path / "x.fl", **option)


def test_a_transform_that_is_set_later_is_refused(tmp_path):
    pack(Pairs(), tmp_path / "x.fl", workers=1)
    dataset = PackedDataset(tmp_path / "x.fl")
    dataset.transform = T.Resize(4)
    with pytest.raises(OptionError, match="transform is for images"):
        dataset[0]
    with pytest.raises(OptionError, match="transform is for images"):
        next(iter(fastload.DataLoader(dataset, num_workers=0)))


@pytest.mark.parametrize("option", [{"encode": "jpeg"}, {"max_side": 100}, {"space": "1GB"}])
def test_options_of_packing_for_images_are_refused(tmp_path, option):
    with pytest.raises(OptionError, match="has no images, to which"):
        pack(Pairs(), tmp_path / "x.fl", **option)


def test_values_of_different_shapes_name_the_collate_function_to_pass(tmp_path):
    samples = [{"x": np.zeros((rows, 2))} for rows in (1, 2)]
    pack(samples, tmp_path / "x.fl", fields=[Field("x", "ragged", "float64", (2,))], workers=1)
    with pytest.raises(OptionError, match=r"values of x must have one shape .* pass collate_fn"):
        next(iter(fastload.DataLoader(PackedDataset(tmp_path / "x.fl"), 2, num_workers=0)))


IMAGE = pixels(1, 8, 8)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"left": T.ToPILImage()(IMAGE), "right": T.ToPILImage()(IMAGE)}], "left, right are images"),
        ([("a text", T.ToPILImage()(IMAGE))], "target is an image, or belongs to one"),
        ([(IMAGE / 255, 1)], r"drop ToTensor .*; or, if it is not an image, make each sample a dict"),
        ([(IMAGE.astype(np.int32), 1)], r"must be of uint8, .* or, if it is not an image"),
        ([{"x": 1}, {"image": IMAGE}], "must hold the fields"),
        ([{"image": IMAGE}, {"x": 1}], "must be .image, target. or a dict with 'image'"),
        ([()], "an empty one"),
        ([{}], "at least one value, got an empty dict"),
        ([(np.zeros(2), {"input": 1})], "must have no target named 'input'"),
    ],
    ids=["two images", "image second", "float", "int32", "image later", "image first", "()", "{}", "input"],
)
def test_samples_that_may_have_an_image_are_refused(tmp_path, samples, message):
    with pytest.raises(SourceError, match=message):
        pack(samples, tmp_path / "x.fl", workers=1)


def test_given_fields_of_objects_need_an_image(tmp_path):
    samples = [{"boxes": np.zeros((1, 4)), "labels": np.zeros(1, np.int64)}]
    with pytest.raises(SourceError, match=r"boxes, labels are images, or belong to one"):
        pack(samples, tmp_path / "x.fl", fields=[Field.boxes("xyxy"), Field.labels()])


def test_an_array_that_looks_like_an_image_is_reported(tmp_path):
    result = pack([{"photo": IMAGE, "file": encoded(IMAGE, ".png"), "id": 1}], tmp_path / "x.fl", workers=1)
    assert "photo, file: kept as arrays or bytes, and not as an image" in result.warnings[0]
    assert_same(PackedDataset(tmp_path / "x.fl")[0]["photo"], IMAGE)


def test_no_samples_are_refused(tmp_path):
    with pytest.raises(SourceError, match="has no records"):
        pack([], tmp_path / "x.fl")


def test_older_releases_refuse_the_version(tmp_path):
    pack(Pairs(), tmp_path / "x.fl", workers=1)
    assert json.loads((tmp_path / "x.fl/manifest.json").read_text())["version"] == 4


def test_damage_names_the_record(tmp_path):
    pack(Captions(), tmp_path / "x.fl", workers=1)
    shard = tmp_path / "x.fl/shard-00000.h5"
    data = shard.read_bytes()
    shard.write_bytes(data.replace("line 7 é".encode(), "line 8 é".encode()))
    assert [damage.record for damage in verify(tmp_path / "x.fl", workers=1).damages] == [None, 7]
    with pytest.raises(fastload.DamageError, match="record 7"):
        PackedDataset(tmp_path / "x.fl")[7]
    replaced = PackedDataset(
        tmp_path / "x.fl", on_error=lambda index, error: PackedDataset(tmp_path / "x.fl")[0]
    )
    assert replaced[7]["id"] == 0
    batch = next(iter(fastload.DataLoader(replaced, 8, num_workers=0)))
    assert batch["id"].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


def test_the_table_of_a_dataset_is_packed_as_the_same_records(tmp_path):
    pack([{"text": f"{at},", "label": at % 2, "x": at / 4} for at in range(5)], tmp_path / "x.fl", workers=1)
    table = unpack(tmp_path / "x.fl", tmp_path / "out").table
    pack(table, tmp_path / "again.fl", workers=1)
    dataset, again = PackedDataset(tmp_path / "x.fl"), PackedDataset(tmp_path / "again.fl")
    assert_same([again[index] for index in range(5)], [dataset[index] for index in range(5)])
